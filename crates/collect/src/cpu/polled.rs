//! What threads do where perf events are refused, as in most containers: asked of
//! `/proc`, so many times a second, without a trace in the job.
//!
//! The kernel tells of each thread how long it ran and how long it was ready
//! (`schedstat`), so those times are exact; the rest is waiting. Where a thread
//! waits is read as for long waits elsewhere. Of one that runs, only Python's frames
//! can be read: its registers are nobody's to see. What threads ran after the last look
//! at them is in the process's own clock, which goes on counting them; whose it was is
//! not known, so it is given to none.

use super::sample::Kind;
use super::threads::{Stretch, WaitSite};
use crate::os::proc::{self, Stat};
use crate::os::sys;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// A thread that runs in short bursts is seldom seen to: what it ran since it was
/// last seen is that of the place where it is seen, up to so many times between two looks.
const MOST_LOOKS: u64 = 4;

/// How often threads are listed whose number has not changed.
const LIST_NS: u64 = 100_000_000;

/// What the kernel counts of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// On a core, ns.
    pub ran_ns: u64,
    /// Ready, but not on one, ns.
    pub ready_ns: u64,
}

/// Where the kernel tells them: kept open, since opening costs more than reading.
#[derive(Debug)]
struct SchedStat(File);

impl SchedStat {
    fn open(pid: u32, tid: u32) -> Option<SchedStat> {
        File::open(format!("/proc/{pid}/task/{tid}/schedstat")).ok().map(SchedStat)
    }

    /// `None` if the thread is gone, or the kernel does not count.
    fn read(&self) -> Option<Times> {
        // Three numbers of up to 20 digits.
        let mut text = [0; 64];
        let len = self.0.read_at(&mut text, 0).ok()?;
        let mut words = std::str::from_utf8(&text[..len]).ok()?.split_whitespace();
        let mut next = || words.next()?.parse().ok();
        Some(Times { ran_ns: next()?, ready_ns: next()? })
    }
}

/// Whether this kernel tells times of threads.
pub fn is_possible() -> bool {
    let pid = std::process::id();
    let times = SchedStat::open(pid, pid).and_then(|source| source.read());
    times.is_some_and(|times| times != Times::default())
}

/// A thread.
#[derive(Debug)]
struct PolledThread {
    source: SchedStat,
    /// The source does not tell any more.
    is_gone: bool,
    times: Times,
    /// When it was last looked at.
    at_ns: u64,
    /// When it was first.
    first_ns: u64,
    /// It ran so long since it was last seen to, and before that nobody can tell where.
    unseen_ns: u64,
    untold_ns: u64,
    ready_ns: u64,
    /// Time that it neither ran nor was ready, not told yet. The kernel counts a thread
    /// as ready once it runs again: what looked like waiting may turn out not to be.
    owed_ns: i64,
    wait: Option<Wait>,
    /// What it is called, as far as that was told.
    name: String,
}

/// A wait that goes on.
#[derive(Debug)]
struct Wait {
    since_ns: u64,
    place: Option<WaitSite>,
    /// How often its place was looked for.
    looks: u32,
}

/// A stack that could not be read is looked for again, so often.
const MOST_TRIES: u32 = 8;

/// What a thread was found to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadActivity {
    /// It ran, and still does; for so long it is said to have been where it is now.
    Runs(u64),
    /// It waits in a place that was not looked at yet.
    Waits,
    /// It waits as before.
    Still,
}

/// A process.
#[derive(Debug)]
struct PolledProcess {
    /// Where its program's stack begins: another program has another one.
    program: u64,
    /// When it was last looked at.
    at_ns: u64,
    threads: HashMap<u32, PolledThread>,
    /// Its threads when they were last listed, when that was, and how many the kernel
    /// said there were.
    tids: Vec<u32>,
    listed_ns: u64,
    count: u64,
    /// What the process's clock showed when it began to be watched.
    clock_ns: u64,
    /// What its threads ran since, as far as they were seen.
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
    /// It runs another program; the old one was last seen then.
    Replaced(u64),
    /// It is gone.
    Gone,
}

/// Where the stack of a process's program begins; 0 where that may not be seen.
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

    /// Looks whether a process still runs its program.
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

    /// Looks at a thread; whether it runs is asked only if it ran.
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

    /// Whether a thread was not called so when it was last looked at.
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

    /// What a process ran, by its clock, of which nobody knows whose it was: threads that
    /// ended between two looks. Threads that run on have done so since they were looked
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

impl PolledThread {
    fn new(source: SchedStat, times: Times, now_ns: u64) -> PolledThread {
        PolledThread {
            source,
            is_gone: false,
            times,
            at_ns: now_ns,
            first_ns: now_ns,
            unseen_ns: 0,
            untold_ns: 0,
            ready_ns: 0,
            owed_ns: 0,
            wait: None,
            name: String::new(),
        }
    }

    fn look(
        &mut self,
        pid: u32,
        tid: u32,
        times: Times,
        now_ns: u64,
        runs: impl FnOnce() -> bool,
        out: &mut Vec<Stretch>,
    ) -> ThreadActivity {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        let ran_ns = times.ran_ns.saturating_sub(self.times.ran_ns);
        let ready_ns = times.ready_ns.saturating_sub(self.times.ready_ns);
        self.times = times;
        self.at_ns = now_ns;
        self.ready_ns += ready_ns;
        self.unseen_ns += ran_ns;
        let rest_ns = passed_ns as i64 - (ran_ns + ready_ns) as i64;
        if ran_ns == 0
            && let Some(wait) = &mut self.wait
        {
            self.owed_ns += rest_ns;
            wait.looks += 1;
            let seen = wait.place.as_ref().is_some_and(|place| !place.frames.is_empty());
            let look = !seen && wait.looks <= MOST_TRIES;
            return if look { ThreadActivity::Waits } else { ThreadActivity::Still };
        }
        // What it was ready for after the wait is not part of it.
        self.owed_ns += rest_ns.min(0);
        self.close(pid, tid, out);
        self.owed_ns += rest_ns.max(0);
        if runs() {
            let seen_ns = self.unseen_ns.min(passed_ns.max(ran_ns).saturating_mul(MOST_LOOKS));
            self.untold_ns += self.unseen_ns - seen_ns;
            self.unseen_ns = 0;
            return ThreadActivity::Runs(seen_ns);
        }
        let since_ns = now_ns.saturating_sub(rest_ns.max(0) as u64);
        self.wait = Some(Wait { since_ns, place: None, looks: 0 });
        ThreadActivity::Waits
    }

    /// Ends the wait.
    fn close(&mut self, pid: u32, tid: u32, out: &mut Vec<Stretch>) {
        let Some(Wait { since_ns: time_ns, place, .. }) = self.wait.take() else { return };
        if let Some(length_ns) = u64::try_from(self.owed_ns).ok().filter(|ns| *ns > 0) {
            self.owed_ns = 0;
            out.push(Stretch { pid, tid, time_ns, length_ns, kind: Kind::Waited, place });
        }
    }

    fn give(&mut self, pid: u32, tid: u32, out: &mut Vec<Stretch>) {
        let ready = (Kind::Ready, std::mem::take(&mut self.ready_ns));
        let ran = (Kind::Ran, std::mem::take(&mut self.untold_ns));
        for (kind, length_ns) in [ready, ran].into_iter().filter(|(_, length_ns)| *length_ns > 0) {
            let time_ns = self.at_ns.saturating_sub(length_ns).max(self.first_ns);
            out.push(Stretch { pid, tid, time_ns, length_ns, kind, place: None });
        }
    }

    fn end(&mut self, pid: u32, tid: u32, out: &mut Vec<Stretch>) {
        self.untold_ns += std::mem::take(&mut self.unseen_ns);
        // Short waits between stretches of running, nobody knows where.
        let since_ns = self.at_ns.saturating_sub(self.owed_ns.max(0) as u64);
        self.wait.get_or_insert(Wait { since_ns, place: None, looks: 0 });
        self.close(pid, tid, out);
        self.give(pid, tid, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Frame;

    const MS: u64 = 1_000_000;

    fn thread() -> PolledThread {
        let pid = std::process::id();
        PolledThread::new(SchedStat::open(pid, pid).unwrap(), Times::default(), 0)
    }

    fn look(
        thread: &mut PolledThread,
        now: u64,
        ran: u64,
        ready: u64,
        runs: bool,
    ) -> (ThreadActivity, u64) {
        let mut out = Vec::new();
        let times = Times { ran_ns: ran * MS, ready_ns: ready * MS };
        let found = thread.look(1, 1, times, now * MS, || runs, &mut out);
        (found, out.iter().map(|stretch| stretch.length_ns / MS).sum())
    }

    #[test]
    fn running_ready_and_waiting_add_up() {
        let mut thread = thread();
        assert_eq!(look(&mut thread, 10, 10, 0, true), (ThreadActivity::Runs(10 * MS), 0));
        assert_eq!(look(&mut thread, 20, 14, 2, false), (ThreadActivity::Waits, 0));
        let place = WaitSite { frames: vec![Frame::Address(7)], ..WaitSite::default() };
        thread.wait.as_mut().unwrap().place = Some(place);
        assert_eq!(look(&mut thread, 30, 14, 2, false), (ThreadActivity::Still, 0));
        assert_eq!(look(&mut thread, 40, 14, 2, false), (ThreadActivity::Still, 0));
        // The wait is over, and what ran before it is where it runs now.
        assert_eq!(look(&mut thread, 50, 20, 2, true), (ThreadActivity::Runs(10 * MS), 24));
        let mut out = Vec::new();
        thread.end(1, 1, &mut out);
        let told: Vec<_> = out.iter().map(|s| (s.kind, s.length_ns)).collect();
        assert_eq!(told, [(Kind::Waited, 4 * MS), (Kind::Ready, 2 * MS)]);
    }

    #[test]
    fn a_thread_that_is_ready_and_not_counted_so_yet_does_not_wait() {
        let mut thread = thread();
        assert_eq!(look(&mut thread, 10, 4, 0, true), (ThreadActivity::Runs(4 * MS), 0));
        assert_eq!(look(&mut thread, 20, 4, 0, true), (ThreadActivity::Runs(0), 0));
        // The kernel counts the 16 ms once it runs again.
        assert_eq!(look(&mut thread, 30, 14, 16, true), (ThreadActivity::Runs(10 * MS), 0));
        let mut out = Vec::new();
        thread.end(1, 1, &mut out);
        let told: Vec<_> = out.iter().map(|s| (s.kind, s.length_ns)).collect();
        assert_eq!(told, [(Kind::Ready, 16 * MS)]);
        // Woken, and ready for 6 ms of the 10 that it seemed to wait.
        let mut thread = self::thread();
        assert_eq!(look(&mut thread, 10, 10, 0, false).0, ThreadActivity::Waits);
        assert_eq!(look(&mut thread, 20, 10, 0, false).0, ThreadActivity::Waits);
        assert_eq!(look(&mut thread, 30, 20, 6, true), (ThreadActivity::Runs(20 * MS), 4));
    }

    #[test]
    fn what_ran_long_ago_is_not_where_it_runs_now() {
        let mut thread = thread();
        for n in 1..=10 {
            look(&mut thread, n * 10, n * 5, 0, false);
        }
        let (found, _) = look(&mut thread, 110, 60, 0, true);
        assert_eq!(found, ThreadActivity::Runs(40 * MS));
        let mut out = Vec::new();
        thread.end(1, 1, &mut out);
        let untold: u64 = out.iter().filter(|s| s.kind == Kind::Ran).map(|s| s.length_ns).sum();
        assert_eq!(untold, 20 * MS);
    }

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
