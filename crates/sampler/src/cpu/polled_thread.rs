//! Computes from readings of `/proc` how long a thread ran, was ready, and waited.

use super::sample::Kind;
use super::threads::{ThreadInterval, WaitSite};
use std::fs::File;
use std::os::unix::fs::FileExt;
use tprof_os::proc::RunTimes;

/// A thread that runs in short bursts is seldom found running. When it is, all time that it ran
/// since it was last found running counts for the place where it is now. This limits that time to a
/// multiple of the time between two readings.
const MAX_READINGS: u64 = 4;

/// The kernel's file with a thread's times. It stays open, because opening costs more than reading.
#[derive(Debug)]
pub struct SchedStat(File);

impl SchedStat {
    pub fn open(pid: u32, tid: u32) -> Option<SchedStat> {
        File::open(format!("/proc/{pid}/task/{tid}/schedstat")).ok().map(SchedStat)
    }

    /// Reads the times; `None` if the thread has ended or the kernel doesn't count them.
    pub fn read(&self) -> Option<RunTimes> {
        // The file contains three numbers of up to 20 digits.
        let mut text = [0; 64];
        let len = self.0.read_at(&mut text, 0).ok()?;
        RunTimes::parse(&text[..len])
    }
}

/// A thread that is polled.
#[derive(Debug)]
pub struct PolledThread {
    pub source: SchedStat,
    /// Whether the thread has ended, so that its file can no longer be read.
    pub is_gone: bool,
    pub times: RunTimes,
    /// Time of the last reading, ns.
    at_ns: u64,
    /// Time of the first reading, or the time when unplaced time was last emitted, ns.
    given_ns: u64,
    /// Time that the thread ran since it was last found running, ns. Its place isn't known yet.
    unseen_ns: u64,
    /// Time that the thread ran in places that stay unknown, not emitted yet, ns.
    unplaced_ns: u64,
    ready_ns: u64,
    /// Time that the thread neither ran nor was ready, not emitted yet, ns. The kernel counts ready
    /// time only when the thread runs again, so time that looked like waiting may later turn out to
    /// be ready time.
    owed_ns: i64,
    pub wait: Option<Wait>,
    /// The thread's name when it was last emitted.
    pub name: String,
}

/// A wait that has not ended.
#[derive(Debug)]
pub struct Wait {
    since_ns: u64,
    pub place: Option<WaitSite>,
    /// Number of readings that have found the thread still in this wait.
    looks: u32,
}

/// Number of times that the sampler tries to read the stack of a wait.
const MAX_TRIES: u32 = 8;

/// What a thread is doing at a reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadActivity {
    /// The thread has run this long, ns, and still runs. The time counts for the place where it is
    /// now.
    Runs(u64),
    /// The thread waits, and the place should be read.
    Waits,
    /// The thread still waits, and the place need not be read again.
    Still,
}

impl PolledThread {
    pub fn new(source: SchedStat, times: RunTimes, now_ns: u64) -> PolledThread {
        PolledThread {
            source,
            is_gone: false,
            times,
            at_ns: now_ns,
            given_ns: now_ns,
            unseen_ns: 0,
            unplaced_ns: 0,
            ready_ns: 0,
            owed_ns: 0,
            wait: None,
            name: String::new(),
        }
    }

    pub fn observe(
        &mut self,
        pid: u32,
        tid: u32,
        times: RunTimes,
        now_ns: u64,
        runs: impl FnOnce() -> bool,
        out: &mut Vec<ThreadInterval>,
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
            let look = !seen && wait.looks <= MAX_TRIES;
            return if look { ThreadActivity::Waits } else { ThreadActivity::Still };
        }
        // Ready time at the end of the wait isn't part of the wait.
        self.owed_ns += rest_ns.min(0);
        self.close(pid, tid, out);
        self.owed_ns += rest_ns.max(0);
        if runs() {
            let seen_ns = self.unseen_ns.min(passed_ns.max(ran_ns).saturating_mul(MAX_READINGS));
            self.unplaced_ns += self.unseen_ns - seen_ns;
            self.unseen_ns = 0;
            return ThreadActivity::Runs(seen_ns);
        }
        let since_ns = now_ns.saturating_sub(rest_ns.max(0) as u64);
        self.wait = Some(Wait { since_ns, place: None, looks: 0 });
        ThreadActivity::Waits
    }

    /// Ends and emits the current wait.
    fn close(&mut self, pid: u32, tid: u32, out: &mut Vec<ThreadInterval>) {
        let Some(Wait { since_ns: time_ns, place, looks }) = self.wait.take() else { return };
        if let Some(length_ns) = u64::try_from(self.owed_ns).ok().filter(|ns| *ns > 0) {
            self.owed_ns = 0;
            // The wait was shorter than the time between two readings, so its exact time is
            // unknown. `spread_ns` is the length of the interval in which it was.
            let within_ns = self.at_ns.saturating_sub(time_ns).max(length_ns);
            let (kind, spread_ns) = (Kind::Waited, (looks == 0).then_some(within_ns));
            out.push(ThreadInterval { pid, tid, time_ns, length_ns, spread_ns, kind, place });
        }
    }

    pub fn emit(&mut self, pid: u32, tid: u32, out: &mut Vec<ThreadInterval>) {
        let ready = (Kind::Ready, std::mem::take(&mut self.ready_ns));
        let ran = (Kind::Ran, std::mem::take(&mut self.unplaced_ns));
        for (kind, length_ns) in [ready, ran].into_iter().filter(|(_, length_ns)| *length_ns > 0) {
            let (time_ns, place) = (self.given_ns, None);
            let spread_ns = Some(self.at_ns.saturating_sub(time_ns).max(length_ns));
            out.push(ThreadInterval { pid, tid, time_ns, length_ns, spread_ns, kind, place });
        }
        self.given_ns = self.at_ns;
    }

    pub fn end(&mut self, pid: u32, tid: u32, out: &mut Vec<ThreadInterval>) {
        self.unplaced_ns += std::mem::take(&mut self.unseen_ns);
        // Between times of running there may have been short waits, in unknown places.
        let since_ns = self.at_ns.saturating_sub(self.owed_ns.max(0) as u64);
        self.wait.get_or_insert(Wait { since_ns, place: None, looks: 0 });
        self.close(pid, tid, out);
        self.emit(pid, tid, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Frame;

    const MS: u64 = 1_000_000;

    fn thread() -> PolledThread {
        let pid = std::process::id();
        PolledThread::new(SchedStat::open(pid, pid).unwrap(), RunTimes::default(), 0)
    }

    fn observe(
        thread: &mut PolledThread,
        now: u64,
        ran: u64,
        ready: u64,
        runs: bool,
    ) -> (ThreadActivity, u64) {
        let mut out = Vec::new();
        let times = RunTimes { ran_ns: ran * MS, ready_ns: ready * MS };
        let found = thread.observe(1, 1, times, now * MS, || runs, &mut out);
        (found, out.iter().map(|stretch| stretch.length_ns / MS).sum())
    }

    #[test]
    fn running_ready_and_waiting_times_add_up() {
        let mut thread = thread();
        assert_eq!(observe(&mut thread, 10, 10, 0, true), (ThreadActivity::Runs(10 * MS), 0));
        assert_eq!(observe(&mut thread, 20, 14, 2, false), (ThreadActivity::Waits, 0));
        let place = WaitSite { frames: vec![Frame::Address(7)], ..WaitSite::default() };
        thread.wait.as_mut().unwrap().place = Some(place);
        assert_eq!(observe(&mut thread, 30, 14, 2, false), (ThreadActivity::Still, 0));
        assert_eq!(observe(&mut thread, 40, 14, 2, false), (ThreadActivity::Still, 0));
        // The wait is over. The time that the thread ran counts for the place where it runs now.
        assert_eq!(observe(&mut thread, 50, 20, 2, true), (ThreadActivity::Runs(10 * MS), 24));
        let mut out = Vec::new();
        thread.end(1, 1, &mut out);
        let intervals: Vec<_> = out.iter().map(|s| (s.kind, s.length_ns)).collect();
        assert_eq!(intervals, [(Kind::Waited, 4 * MS), (Kind::Ready, 2 * MS)]);
    }

    #[test]
    fn ready_time_that_is_counted_late_is_not_waiting() {
        let mut thread = thread();
        assert_eq!(observe(&mut thread, 10, 4, 0, true), (ThreadActivity::Runs(4 * MS), 0));
        assert_eq!(observe(&mut thread, 20, 4, 0, true), (ThreadActivity::Runs(0), 0));
        // The kernel counts the 16 ms of ready time only once the thread runs again.
        assert_eq!(observe(&mut thread, 30, 14, 16, true), (ThreadActivity::Runs(10 * MS), 0));
        let mut out = Vec::new();
        thread.end(1, 1, &mut out);
        let intervals: Vec<_> = out.iter().map(|s| (s.kind, s.length_ns)).collect();
        assert_eq!(intervals, [(Kind::Ready, 16 * MS)]);
        // The thread was woken, and was ready for 6 of the 10 ms in which it seemed to wait.
        let mut thread = self::thread();
        assert_eq!(observe(&mut thread, 10, 10, 0, false).0, ThreadActivity::Waits);
        assert_eq!(observe(&mut thread, 20, 10, 0, false).0, ThreadActivity::Waits);
        assert_eq!(observe(&mut thread, 30, 20, 6, true), (ThreadActivity::Runs(20 * MS), 4));
    }

    #[test]
    fn time_that_a_thread_ran_long_ago_has_no_known_place() {
        let mut thread = thread();
        for n in 1..=10 {
            observe(&mut thread, n * 10, n * 5, 0, false);
        }
        let (found, _) = observe(&mut thread, 110, 60, 0, true);
        assert_eq!(found, ThreadActivity::Runs(40 * MS));
        let mut out = Vec::new();
        thread.end(1, 1, &mut out);
        let unplaced: u64 = out.iter().filter(|s| s.kind == Kind::Ran).map(|s| s.length_ns).sum();
        assert_eq!(unplaced, 20 * MS);
    }
}
