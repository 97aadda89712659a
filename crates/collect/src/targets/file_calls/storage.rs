//! Shares the bytes that the kernel read from storage for a thread among the thread's rows.
//!
//! The kernel counts these bytes for each thread: those of its own reads, of what it read ahead for
//! them, and of its page faults. The collector reads the counter each time that it writes rows. So
//! a row's share is exact if the thread read one file in that time, and in proportion to its bytes
//! otherwise.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_os::proc;
use tprof_trace::model::*;

/// The kernel's count of what it read from storage for a thread.
#[derive(Debug)]
struct Counter {
    tid: u32,
    /// Its value when rows were last written; `None` before the first reading.
    bytes: Option<u64>,
    read_ns: u64,
    /// What was read ahead of the rows that have got their share, and is for the next ones.
    ahead: u64,
    /// Whether the thread has made calls since then.
    is_due: bool,
}

/// The counters of the threads of an image that have made calls on files.
#[derive(Debug)]
pub(super) struct StorageReads {
    pid: u32,
    /// Whether the counters can be read by the threads' ids.
    can_read: bool,
    threads: FxHashMap<ThreadIndex, Counter>,
}

impl StorageReads {
    pub fn new(pid: u32, can_read: bool) -> StorageReads {
        StorageReads { pid, can_read, threads: FxHashMap::default() }
    }

    /// Called for each call of a thread.
    #[inline]
    pub fn seen(&mut self, (thread, tid): (ThreadIndex, u32)) {
        if !self.can_read {
            return;
        }
        let main = self.pid == tid;
        // The count of a new thread begins at zero with the thread. That of a main thread contains
        // what the loader read before the program began.
        let bytes = (!main).then_some(0);
        let counter = || Counter { tid, bytes, read_ns: 0, ahead: 0, is_due: true };
        self.threads.entry(thread).or_insert_with(counter).is_due = true;
    }

    /// Shares what was read since the last call among the rows that read from file systems in
    /// `counting`. What a thread without such rows read was for its page faults.
    pub fn share(
        &mut self,
        now: u64,
        process: ProcessIndex,
        rows: &mut Vec<FileCalls>,
        last: bool,
        counting: &FxHashSet<NameId>,
    ) {
        let mut read = FxHashMap::default();
        self.threads.retain(|thread, counter| {
            if !std::mem::take(&mut counter.is_due) || last {
                return true;
            }
            // A thread that has ended has no counter.
            let Some(bytes) = proc::storage_read_by_thread(self.pid, counter.tid) else {
                return false;
            };
            let since_ns = std::mem::replace(&mut counter.read_ns, now);
            if let Some(before) = counter.bytes.replace(bytes) {
                let ahead = std::mem::take(&mut counter.ahead);
                read.insert(*thread, (bytes.saturating_sub(before), ahead, since_ns));
            }
            true
        });
        let reads = |row: &FileCalls| {
            row.operation == FileOperation::Read && counting.contains(&row.file_system)
        };
        let mut sums: FxHashMap<ThreadIndex, u64> = FxHashMap::default();
        for row in rows.iter().filter(|row| reads(row)) {
            *sums.entry(row.thread).or_default() += row.bytes;
        }
        let mut given: FxHashMap<ThreadIndex, u64> = FxHashMap::default();
        for row in rows.iter_mut().filter(|row| reads(row)) {
            let Some((new, ahead, _)) = read.get(&row.thread) else { continue };
            let bytes = new + ahead;
            let sum = sums.get(&row.thread).copied().unwrap_or(0).max(1);
            // The kernel may read ahead more than the program reads now, so a row has at most its
            // own bytes.
            let share = (u128::from(bytes) * u128::from(row.bytes) / u128::from(sum)) as u64;
            let share = share.min(row.bytes);
            row.storage_bytes = Some(share);
            *given.entry(row.thread).or_default() += share;
        }
        for (thread, (bytes, ahead, since_ns)) in read {
            if let (Some(given), Some(counter)) =
                (given.get(&thread), self.threads.get_mut(&thread))
            {
                counter.ahead = (bytes + ahead).saturating_sub(*given);
            }
            if bytes == 0 || sums.contains_key(&thread) || since_ns == 0 {
                continue;
            }
            rows.push(FileCalls {
                start_ns: since_ns,
                duration_ns: now.saturating_sub(since_ns),
                process,
                thread,
                operation: FileOperation::Fault,
                storage_bytes: Some(bytes),
                ..FileCalls::default()
            });
        }
    }
}
