//! Samples threads by reading `/proc` many times per second, without any effect on the job. It is
//! used if perf events are refused, as in most containers.
//!
//! For each thread the kernel counts how long it ran and how long it was ready (`schedstat`), so
//! those times are exact; the rest is waiting. The place of a wait is read as for long waits with
//! perf events. Of a running thread only Python's frames can be read, since its registers can't.
//! The time that threads ran after their last reading is missing from their own counts but included
//! in the clock of the process. It is unknown which thread ran, so that time is assigned to none.
//!
//! - The time after a thread's last reading, and threads that live between two readings, are only
//!   known for the process as a whole, and count as lost. The last moment of a process is unknown.
//!   So is a process that lasts less than 0.1 s and does not have the library.
//! - A wait for a child or a signal is `other`. A stopped thread counts as waiting for what it
//!   waited for before.
//! - Context switches are not counted. The readings take at most 10 % of a core, so thousands of
//!   threads are read less often.

pub use super::polled_thread::ThreadActivity;
use super::polled_thread::{PolledThread, RunTimes, SchedStat};
use super::threads::{ThreadInterval, WaitSite};
use crate::os::proc::{self, Stat};
use crate::os::sys;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Time between two listings of threads if their number has not changed.
const LIST_NS: u64 = 100_000_000;

/// Whether this kernel counts the times of threads.
pub fn is_possible() -> bool {
    let pid = std::process::id();
    let times = SchedStat::open(pid, pid).and_then(|source| source.read());
    times.is_some_and(|times| times != RunTimes::default())
}

/// A process that is polled.
#[derive(Debug)]
struct PolledProcess {
    /// Address at which the stack of its program begins, which differs from program to program.
    program: u64,
    /// Time when it was last read.
    at_ns: u64,
    threads: HashMap<u32, PolledThread>,
    /// Its threads when they were last listed, the time of that, and the kernel's number of threads
    /// then.
    tids: Vec<u32>,
    listed_ns: u64,
    count: u64,
    /// The process's clock when it began to be watched.
    clock_ns: u64,
    /// Time that its threads have run since then, according to their readings, ns.
    ran_ns: u64,
    /// Time that unknown threads have run, ns; see [`PolledProcesses::read_clock`].
    unseen_ns: u64,
}

/// The processes that are polled.
#[derive(Debug, Default)]
pub struct PolledProcesses {
    by_pid: HashMap<u32, PolledProcess>,
}

/// The change of a process's program since the last reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramChange {
    /// The process still runs its program.
    Same,
    /// The process runs another program. The old one was last read at this time.
    Replaced(u64),
    /// The process has ended.
    Gone,
}

/// Returns the address at which the stack of a process's program begins, or 0 if it may not be
/// read. `None` if the process has ended.
fn program_of(pid: u32) -> Option<u64> {
    Stat::of(pid).filter(Stat::lives)?.stack_start()
}

impl PolledProcesses {
    /// Whether no process is polled.
    pub fn is_empty(&self) -> bool {
        self.by_pid.is_empty()
    }

    /// Whether a process is polled.
    pub fn has(&self, pid: u32) -> bool {
        self.by_pid.contains_key(&pid)
    }

    /// Returns the pids of all polled processes.
    pub fn pids(&self) -> Vec<u32> {
        self.by_pid.keys().copied().collect()
    }

    /// Begins to poll a process. `from_start` says that the time that its threads ran before now
    /// counts too.
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
        self.by_pid.insert(pid, process);
        true
    }

    /// Checks whether a process still runs its program.
    pub fn program(&mut self, pid: u32, now_ns: u64) -> ProgramChange {
        let Some(process) = self.by_pid.get_mut(&pid) else { return ProgramChange::Gone };
        let Some(program) = program_of(pid) else { return ProgramChange::Gone };
        let last_ns = std::mem::replace(&mut process.at_ns, now_ns);
        match std::mem::replace(&mut process.program, program) == program {
            true => ProgramChange::Same,
            false => ProgramChange::Replaced(last_ns),
        }
    }

    /// Returns the threads of a process. They are listed again if their number has changed, and
    /// from time to time in case as many began as ended.
    pub fn tids(&mut self, pid: u32, now_ns: u64) -> Vec<u32> {
        let Some(process) = self.by_pid.get_mut(&pid) else { return Vec::new() };
        let count = proc::count_threads(pid);
        if count != process.count || now_ns.saturating_sub(process.listed_ns) >= LIST_NS {
            process.tids = proc::threads_of(pid);
            (process.count, process.listed_ns) = (count, now_ns);
        }
        process.tids.clone()
    }

    /// Reads a thread. Its state is only read if it ran.
    pub fn observe(
        &mut self,
        pid: u32,
        tid: u32,
        now_ns: u64,
        runs: impl FnOnce() -> bool,
        out: &mut Vec<ThreadInterval>,
    ) -> Option<ThreadActivity> {
        let process = self.by_pid.get_mut(&pid)?;
        let thread = match process.threads.entry(tid) {
            Entry::Occupied(thread) => thread.into_mut(),
            // The thread has begun since the last reading.
            Entry::Vacant(place) => place.insert(PolledThread::new(
                SchedStat::open(pid, tid)?,
                RunTimes::default(),
                now_ns,
            )),
        };
        let Some(times) = thread.source.read() else {
            // Another thread may have this tid by now.
            thread.is_gone = true;
            process.listed_ns = 0;
            return None;
        };
        process.ran_ns += times.ran_ns.saturating_sub(thread.times.ran_ns);
        Some(thread.observe(pid, tid, times, now_ns, runs, out))
    }

    /// Whether a thread has another name than when it was last read, and keeps the new name.
    pub fn is_new_name(&mut self, pid: u32, tid: u32, name: &str) -> bool {
        let thread = self.by_pid.get_mut(&pid).and_then(|process| process.threads.get_mut(&tid));
        thread.filter(|thread| thread.name != name).is_some_and(|thread| {
            name.clone_into(&mut thread.name);
            true
        })
    }

    /// Records where a thread was found to wait.
    pub fn waits_at(&mut self, pid: u32, tid: u32, place: WaitSite) {
        let thread = self.by_pid.get_mut(&pid).and_then(|process| process.threads.get_mut(&tid));
        if let Some(wait) = thread.and_then(|thread| thread.wait.as_mut()) {
            wait.place = Some(place);
        }
    }

    /// Emits the added-up times of all threads.
    pub fn emit(&mut self, out: &mut Vec<ThreadInterval>) {
        for (pid, process) in &mut self.by_pid {
            for (tid, thread) in &mut process.threads {
                thread.emit(*pid, *tid, out);
            }
        }
    }

    /// Removes the threads that have ended.
    pub fn keep_threads(&mut self, pid: u32, tids: &[u32], out: &mut Vec<ThreadInterval>) {
        let Some(process) = self.by_pid.get_mut(&pid) else { return };
        process.threads.retain(|tid, thread| {
            let lives = !thread.is_gone && tids.contains(tid);
            if !lives {
                thread.end(pid, *tid, out);
            }
            lives
        });
    }

    /// Reads a process's clock after its threads were read, to find the time that no known thread
    /// ran.
    pub fn read_clock(&mut self, pid: u32) {
        let Some(process) = self.by_pid.get_mut(&pid) else { return };
        let Some(clock_ns) = sys::process_clock_ns(pid) else { return };
        process.unseen_ns = clock_ns.saturating_sub(process.clock_ns + process.ran_ns);
    }

    /// Returns the time that unknown threads of a process ran: those that ended between two
    /// readings. Known threads have run on since their readings, so less than a millisecond per
    /// thread counts as none.
    pub fn unseen_ms(&self, pid: u32) -> u64 {
        let Some(process) = self.by_pid.get(&pid) else { return 0 };
        let unseen_ms = process.unseen_ns / 1_000_000;
        if unseen_ms > process.tids.len() as u64 { unseen_ms } else { 0 }
    }

    /// Ends all threads of a program. `goes_on` says that the process runs another program from now
    /// on.
    pub fn ended(&mut self, pid: u32, goes_on: bool, out: &mut Vec<ThreadInterval>) {
        let Some(process) = self.by_pid.get_mut(&pid) else { return };
        for (tid, thread) in &mut process.threads {
            thread.end(pid, *tid, out);
        }
        match goes_on {
            // Only the thread that continues has run before.
            true => process.threads.retain(|tid, _| *tid == pid),
            false => drop(self.by_pid.remove(&pid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_and_one_that_is_gone_is_not() {
        let pid = std::process::id();
        let mut polled = PolledProcesses::default();
        assert!(polled.begin(pid, 5, false) && is_possible());
        assert_eq!(polled.program(pid, 7), ProgramChange::Same);
        polled.by_pid.get_mut(&pid).unwrap().program += 16;
        assert_eq!(polled.program(pid, 9), ProgramChange::Replaced(7));
        assert!(!polled.begin(u32::MAX, 5, false));
    }
}
