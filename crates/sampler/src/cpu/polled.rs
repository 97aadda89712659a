//! Samples threads by reading `/proc` many times per second, which has no effect on the job. This
//! replaces perf events where they are refused, as in most containers.
//!
//! For each thread the kernel counts how long it ran and how long it was ready (`schedstat`), so
//! these times are exact. The rest of the time the thread waited. The place of a wait is read as
//! for long waits with perf events. Of a running thread only Python's frames can be read, because
//! its registers can't. A thread may run after its last reading. The clock of the process includes
//! that time, but nothing tells which thread ran, so the time is assigned to no thread.
//!
//! - Two times are known only for the process as a whole and count as lost: the time after a
//!   thread's last reading, and the time of threads that live between two readings. The last moment
//!   of a process is unknown. A process that lasts less than 0.1 s and doesn't have the library
//!   isn't seen at all.
//! - A wait for a child or a signal has the kind `other`. A stopped thread counts as waiting for
//!   what it waited for before.
//! - Context switches are not counted. The readings take at most 10 % of a core, so in jobs with
//!   thousands of threads each thread is read less often.

pub use super::polled_thread::ThreadActivity;
use super::polled_thread::{PolledThread, SchedStat};
use super::threads::{ThreadInterval, WaitSite};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use tprof_os::proc::RunTimes;
use tprof_os::proc::{self, Stat};
use tprof_os::sys;

/// Time after which threads are listed again even if their number has not changed, ns.
const LIST_NS: u64 = 100_000_000;

/// Whether this kernel counts how long threads ran and were ready.
pub fn is_possible() -> bool {
    let pid = std::process::id();
    let times = SchedStat::open(pid, pid).and_then(|source| source.read());
    times.is_some_and(|times| times != RunTimes::default())
}

/// A process that is polled.
#[derive(Debug)]
struct PolledProcess {
    /// Address at which the stack of the current program begins. It tells programs apart, because
    /// the kernel chooses another address at each exec.
    program: u64,
    /// Time of the last reading, ns.
    at_ns: u64,
    threads: HashMap<u32, PolledThread>,
    /// The threads when they were last listed. `listed_ns` is the time of the listing, and `count`
    /// the number of threads that the kernel reported then.
    tids: Vec<u32>,
    listed_ns: u64,
    count: u64,
    /// The process's CPU clock when polling began, ns.
    clock_ns: u64,
    /// Time that the threads ran since then, according to their readings, ns.
    ran_ns: u64,
    /// Time that unknown threads ran, ns; see [`PolledProcesses::read_clock`].
    unseen_ns: u64,
}

/// The processes that are polled.
#[derive(Debug, Default)]
pub struct PolledProcesses {
    by_pid: HashMap<u32, PolledProcess>,
}

/// What happened to a process's program since the last reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramChange {
    /// The process still runs its program.
    Same,
    /// The process runs another program. The previous one was last read at this time.
    Replaced(u64),
    /// The process has ended.
    Gone,
}

/// Returns the address at which the stack of a process's program begins; `None` if the process has
/// ended. The address is 0 if it may not be read, and while the process is exiting: its memory is
/// gone a moment before it ends.
fn program_of(pid: u32) -> Option<u64> {
    Stat::of(pid).filter(Stat::lives)?.stack_start()
}

/// Notes the program that a process runs now. Returns whether that is another one than before.
fn replaces(now: u64, known: &mut u64) -> bool {
    now != 0 && std::mem::replace(known, now) != now
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

    /// Begins to poll a process. With `from_start`, the time that its threads ran before now counts
    /// as well. Returns false if the process has ended.
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
        let clock_ns = if from_start { 0 } else { sys::cpu_ns_of(pid).unwrap_or(0) };
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
        match replaces(program, &mut process.program) {
            true => ProgramChange::Replaced(last_ns),
            false => ProgramChange::Same,
        }
    }

    /// Returns the threads of a process. They are listed again if their number has changed, and
    /// from time to time because as many may have begun as ended.
    pub fn tids(&mut self, pid: u32, now_ns: u64) -> Vec<u32> {
        let Some(process) = self.by_pid.get_mut(&pid) else { return Vec::new() };
        let count = proc::count_threads(pid);
        if count != process.count || now_ns.saturating_sub(process.listed_ns) >= LIST_NS {
            process.tids = proc::threads_of(pid);
            (process.count, process.listed_ns) = (count, now_ns);
        }
        process.tids.clone()
    }

    /// Reads a thread's times. `runs` tells whether the thread is running; it is called only if the
    /// thread ran since the last reading.
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
            // The thread began after the last reading.
            Entry::Vacant(place) => place.insert(PolledThread::new(
                SchedStat::open(pid, tid)?,
                RunTimes::default(),
                now_ns,
            )),
        };
        let Some(times) = thread.source.read() else {
            // The thread has ended. Another thread may have its tid by now, so threads are listed
            // again.
            thread.is_gone = true;
            process.listed_ns = 0;
            return None;
        };
        process.ran_ns += times.ran_ns.saturating_sub(thread.times.ran_ns);
        Some(thread.observe(pid, tid, times, now_ns, runs, out))
    }

    /// Returns whether a thread's name has changed since the last call, and remembers the name.
    pub fn is_new_name(&mut self, pid: u32, tid: u32, name: &str) -> bool {
        let thread = self.by_pid.get_mut(&pid).and_then(|process| process.threads.get_mut(&tid));
        thread.filter(|thread| thread.name != name).is_some_and(|thread| {
            name.clone_into(&mut thread.name);
            true
        })
    }

    /// Records the place where a thread waits.
    pub fn waits_at(&mut self, pid: u32, tid: u32, place: WaitSite) {
        let thread = self.by_pid.get_mut(&pid).and_then(|process| process.threads.get_mut(&tid));
        if let Some(wait) = thread.and_then(|thread| thread.wait.as_mut()) {
            wait.place = Some(place);
        }
    }

    /// Emits the times of all threads that have no place and were only added up so far.
    pub fn emit(&mut self, out: &mut Vec<ThreadInterval>) {
        for (pid, process) in &mut self.by_pid {
            for (tid, thread) in &mut process.threads {
                thread.emit(*pid, *tid, out);
            }
        }
    }

    /// Removes the threads of a process that have ended, and emits their last times.
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

    /// Reads a process's CPU clock, after its threads were read. The clock minus the threads' times
    /// is the time that unknown threads ran.
    pub fn read_clock(&mut self, pid: u32) {
        let Some(process) = self.by_pid.get_mut(&pid) else { return };
        let Some(clock_ns) = sys::cpu_ns_of(pid) else { return };
        process.unseen_ns = clock_ns.saturating_sub(process.clock_ns + process.ran_ns);
    }

    /// Returns the time that unknown threads of a process ran, that is, threads that ended between
    /// two readings. Known threads have run a little since their readings, so less than a
    /// millisecond per thread counts as 0.
    pub fn unseen_ms(&self, pid: u32) -> u64 {
        let Some(process) = self.by_pid.get(&pid) else { return 0 };
        let unseen_ms = process.unseen_ns / 1_000_000;
        if unseen_ms > process.tids.len() as u64 { unseen_ms } else { 0 }
    }

    /// Ends all threads of a program. `goes_on` says whether the process now runs another program.
    pub fn ended(&mut self, pid: u32, goes_on: bool, out: &mut Vec<ThreadInterval>) {
        let Some(process) = self.by_pid.get_mut(&pid) else { return };
        for (tid, thread) in &mut process.threads {
            thread.end(pid, *tid, out);
        }
        match goes_on {
            // Exec ends all threads but the main one, whose times go on.
            true => process.threads.retain(|tid, _| *tid == pid),
            false => drop(self.by_pid.remove(&pid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_process_is_polled_and_an_ended_one_is_not() {
        let pid = std::process::id();
        let mut polled = PolledProcesses::default();
        assert!(polled.begin(pid, 5, false) && is_possible());
        assert_eq!(polled.program(pid, 7), ProgramChange::Same);
        polled.by_pid.get_mut(&pid).unwrap().program += 16;
        assert_eq!(polled.program(pid, 9), ProgramChange::Replaced(7));
        assert!(!polled.begin(u32::MAX, 5, false));
    }

    #[test]
    fn a_process_without_memory_is_exiting_and_runs_no_other_program() {
        let mut known = 0x7ffd_0000;
        assert!(!replaces(0, &mut known) && !replaces(0x7ffd_0000, &mut known));
        assert!(replaces(0x7ffe_0000, &mut known) && !replaces(0x7ffe_0000, &mut known));
    }
}
