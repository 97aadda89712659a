//! What threads do where perf events are refused, as in most containers: asked of
//! `/proc`, so many times a second, without a trace in the job.
//!
//! The kernel counts for each thread how long it ran and how long it was ready
//! (`schedstat`), so those times are exact; the rest is waiting. Where a thread
//! waits is read as for long waits elsewhere. Of one that runs, only Python's frames
//! can be read: its registers cannot be read. What threads ran after the last reading
//! at them is in the process's own clock, which goes on counting them; the thread is
//! not known, so it is given to none.
//!
//! - Time after a thread's last reading, and threads between two readings, are known for the
//!   process as a whole only, and count as lost. The last moment of a process is unknown, and so
//!   is a process of under 0.1 s without the library.
//! - Waiting for a child or a signal is `other`. A stopped thread counts as waiting for what it
//!   waited for before.
//! - Switches are not counted. The readings take at most 10 % of a core, so thousands of threads
//!   are read less often.

pub use super::polled_thread::ThreadActivity;
use super::polled_thread::{PolledThread, SchedStat, Times};
use super::threads::{Stretch, WaitSite};
use crate::os::proc::{self, Stat};
use crate::os::sys;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// How often threads are listed while their number has not changed.
const LIST_NS: u64 = 100_000_000;

/// Whether this kernel has times of threads.
pub fn is_possible() -> bool {
    let pid = std::process::id();
    let times = SchedStat::open(pid, pid).and_then(|source| source.read());
    times.is_some_and(|times| times != Times::default())
}

/// A process.
#[derive(Debug)]
struct PolledProcess {
    /// Where its program's stack begins: another program has another one.
    program: u64,
    /// When it was last read.
    at_ns: u64,
    threads: HashMap<u32, PolledThread>,
    /// Its threads when they were last listed, when that was, and how many the kernel
    /// reported.
    tids: Vec<u32>,
    listed_ns: u64,
    count: u64,
    /// What the process's clock showed when it began to be watched.
    clock_ns: u64,
    /// What its threads ran since, as far as they were read.
    ran_ns: u64,
    /// See [`Polled::read_clock`].
    unseen_ns: u64,
}

/// All processes that are asked.
#[derive(Debug, Default)]
pub struct Polled {
    of: HashMap<u32, PolledProcess>,
}

/// What became of a process since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramChange {
    /// It runs on.
    Same,
    /// It runs another program; the old one was last read then.
    Replaced(u64),
    /// It is gone.
    Gone,
}

/// Where the stack of a process's program begins; 0 where that may not be read.
fn program_of(pid: u32) -> Option<u64> {
    Stat::of(pid).filter(Stat::lives)?.stack_start()
}

impl Polled {
    /// Whether any process is.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Whether a process is.
    pub fn has(&self, pid: u32) -> bool {
        self.of.contains_key(&pid)
    }

    /// All of them.
    pub fn pids(&self) -> Vec<u32> {
        self.of.keys().copied().collect()
    }

    /// Begins with a process. `from_start`: what its threads did before counts too.
    pub fn begin(&mut self, pid: u32, now_ns: u64, from_start: bool) -> bool {
        let Some(program) = program_of(pid) else { return false };
        let mut threads = HashMap::new();
        if !from_start {
            for tid in proc::threads_of(pid) {
                let Some(source) = SchedStat::open(pid, tid) else { continue };
                let Some(times) = source.read() else { continue };
                threads.insert(tid, PolledThread::new(source, times, now_ns));
            }
        }
        let clock_ns = if from_start { 0 } else { sys::process_clock_ns(pid).unwrap_or(0) };
        let process = PolledProcess {
            program,
            at_ns: now_ns,
            threads,
            tids: Vec::new(),
            listed_ns: 0,
            count: 0,
            clock_ns,
            ran_ns: 0,
            unseen_ns: 0,
        };
        self.of.insert(pid, process);
        true
    }

    /// Checks whether a process still runs its program.
    pub fn program(&mut self, pid: u32, now_ns: u64) -> ProgramChange {
        let Some(process) = self.of.get_mut(&pid) else { return ProgramChange::Gone };
        let Some(program) = program_of(pid) else { return ProgramChange::Gone };
        let last_ns = std::mem::replace(&mut process.at_ns, now_ns);
        match std::mem::replace(&mut process.program, program) == program {
            true => ProgramChange::Same,
            false => ProgramChange::Replaced(last_ns),
        }
    }

    /// Threads of a process. They are listed anew when there are more or fewer, and now
    /// and then in case that as many began as ended.
    pub fn tids(&mut self, pid: u32, now_ns: u64) -> Vec<u32> {
        let Some(process) = self.of.get_mut(&pid) else { return Vec::new() };
        let count = proc::count_threads(pid);
        if count != process.count || now_ns.saturating_sub(process.listed_ns) >= LIST_NS {
            process.tids = proc::threads_of(pid);
            (process.count, process.listed_ns) = (count, now_ns);
        }
        process.tids.clone()
    }

    /// Reads a thread; its state is read only if it ran.
    pub fn look(
        &mut self,
        pid: u32,
        tid: u32,
        now_ns: u64,
        runs: impl FnOnce() -> bool,
        out: &mut Vec<Stretch>,
    ) -> Option<ThreadActivity> {
        let process = self.of.get_mut(&pid)?;
        let thread = match process.threads.entry(tid) {
            Entry::Occupied(thread) => thread.into_mut(),
            // One that began since the last look.
            Entry::Vacant(place) => place.insert(PolledThread::new(
                SchedStat::open(pid, tid)?,
                Times::default(),
                now_ns,
            )),
        };
        let Some(times) = thread.source.read() else {
            // Another thread may have its number by now.
            thread.is_gone = true;
            process.listed_ns = 0;
            return None;
        };
        process.ran_ns += times.ran_ns.saturating_sub(thread.times.ran_ns);
        Some(thread.look(pid, tid, times, now_ns, runs, out))
    }

    /// Whether a thread had another name when it was last read.
    pub fn is_new_name(&mut self, pid: u32, tid: u32, name: &str) -> bool {
        let thread = self.of.get_mut(&pid).and_then(|process| process.threads.get_mut(&tid));
        thread.filter(|thread| thread.name != name).is_some_and(|thread| {
            name.clone_into(&mut thread.name);
            true
        })
    }

    /// Where a thread was found to wait.
    pub fn waits_at(&mut self, pid: u32, tid: u32, place: WaitSite) {
        let thread = self.of.get_mut(&pid).and_then(|process| process.threads.get_mut(&tid));
        if let Some(wait) = thread.and_then(|thread| thread.wait.as_mut()) {
            wait.place = Some(place);
        }
    }

    /// Hands out what was added up of all threads.
    pub fn give(&mut self, out: &mut Vec<Stretch>) {
        for (pid, process) in &mut self.of {
            for (tid, thread) in &mut process.threads {
                thread.give(*pid, *tid, out);
            }
        }
    }

    /// Forgets threads that are gone.
    pub fn keep_threads(&mut self, pid: u32, tids: &[u32], out: &mut Vec<Stretch>) {
        let Some(process) = self.of.get_mut(&pid) else { return };
        process.threads.retain(|tid, thread| {
            let lives = !thread.is_gone && tids.contains(tid);
            if !lives {
                thread.end(pid, *tid, out);
            }
            lives
        });
    }

    /// Reads a process's clock, after a look at its threads: what it ran that no thread
    /// is known to have run.
    pub fn read_clock(&mut self, pid: u32) {
        let Some(process) = self.of.get_mut(&pid) else { return };
        let Some(clock_ns) = sys::process_clock_ns(pid) else { return };
        process.unseen_ns = clock_ns.saturating_sub(process.clock_ns + process.ran_ns);
    }

    /// What a process ran, by its clock, in unknown threads: those that
    /// ended between two readings. Threads that run on have done so since they were read
    /// at: less than a millisecond for each of them is none.
    pub fn unseen_ms(&self, pid: u32) -> u64 {
        let Some(process) = self.of.get(&pid) else { return 0 };
        let unseen_ms = process.unseen_ns / 1_000_000;
        if unseen_ms > process.tids.len() as u64 { unseen_ms } else { 0 }
    }

    /// All threads of a program end; those of its process begin anew if `goes_on`.
    pub fn ended(&mut self, pid: u32, goes_on: bool, out: &mut Vec<Stretch>) {
        let Some(process) = self.of.get_mut(&pid) else { return };
        for (tid, thread) in &mut process.threads {
            thread.end(pid, *tid, out);
        }
        match goes_on {
            // The thread that goes on has run before.
            true => process.threads.retain(|tid, _| *tid == pid),
            false => drop(self.of.remove(&pid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_and_one_that_is_gone_is_not() {
        let pid = std::process::id();
        let mut polled = Polled::default();
        assert!(polled.begin(pid, 5, false) && is_possible());
        assert_eq!(polled.program(pid, 7), ProgramChange::Same);
        polled.of.get_mut(&pid).unwrap().program += 16;
        assert_eq!(polled.program(pid, 9), ProgramChange::Replaced(7));
        assert!(!polled.begin(u32::MAX, 5, false));
    }
}
