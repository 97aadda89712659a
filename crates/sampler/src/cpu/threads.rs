//! Computes how long each thread ran, was ready, and waited. The kernel's records say when a thread
//! left its processor and when it came back.

use super::sample::{Counts, Frame, Kind};
use crate::perf::record::Registers;
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use tprof_trace::model::ThreadState;

/// Waits that are shorter than this are added up by thread and place, ns.
const SHORT_WAIT_NS: u64 = 1_000_000;
/// If a thread waits in a call that polls or locks, the descriptor is looked up after this time,
/// ns.
const LONG_WAIT_NS: u64 = 10_000_000;
/// An argument of a system call that is smaller than this may be a descriptor. Addresses are
/// larger.
const MAX_DESCRIPTOR: u64 = 1 << 16;
/// Times of being ready that are shorter than this are added up as well, ns.
const SHORT_READY_NS: u64 = 20_000_000;

/// The place of a thread when it left its processor, and what it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WaitSite {
    /// Frames, innermost first; empty if its stack could not be read.
    pub frames: Vec<Frame>,
    /// The reason why the frames end, a [`tprof_wire::record::StackEnd`].
    pub end: u8,
    /// The kind of the wait, if that is known.
    pub waits_for: Option<ThreadState>,
}

/// An interval in which a thread ran, was ready or waited; or several short ones that were added
/// up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadInterval {
    /// Pid of the process.
    pub pid: u32,
    /// Tid of the thread.
    pub tid: u32,
    /// Time when the interval began, ns. If several were added up, the time when the first began.
    pub time_ns: u64,
    /// Length of the interval, or the sum of the lengths, ns.
    pub length_ns: u64,
    /// If several were added up, or if the exact time is unknown, ns: then `length_ns` is a part of
    /// the interval that begins at `time_ns` and has this length.
    pub spread_ns: Option<u64>,
    /// What the thread did.
    pub kind: Kind,
    /// Where the thread was, if that is known.
    pub place: Option<WaitSite>,
}

#[derive(Debug, Default)]
struct Thread {
    pid: u32,
    /// Time since which the thread is on a processor, ns; `None` if it is on none.
    on_since: Option<u64>,
    /// Time since which the thread is off its processor, ns, and whether it was preempted.
    off_since: Option<(u64, bool)>,
    /// Where the thread was when it left its processor, from a sample or from a reading during the
    /// wait.
    leaving: Option<WaitSite>,
    /// Whether the counter took a sample when the thread left.
    sampled: bool,
    /// The registers when it left, if that was sampled. The argument is the first argument of its
    /// system call.
    left_at: Option<Registers>,
    /// Whether this wait was already read, or its descriptor looked up.
    looked: bool,
    /// Whether the last wait that wasn't short had no sample.
    passed_over: bool,
    /// Time that the thread ran and no sample covers yet, ns. Negative if samples cover more than
    /// it ran.
    unsampled_ns: i64,
    first_ns: u64,
    counts: Counts,
    last_cpu: Option<u32>,
    /// Short intervals that are added up, by kind and place.
    short: HashMap<(Kind, Option<WaitSite>), ShortIntervals>,
}

/// Short intervals that are added up.
#[derive(Clone, Copy, Debug)]
struct ShortIntervals {
    /// Beginning of the first interval, ns.
    since_ns: u64,
    /// End of the last interval, ns.
    until_ns: u64,
    length_ns: u64,
    count: u64,
}

/// All threads that the sampler follows.
#[derive(Debug, Default)]
pub struct Threads {
    by_tid: FxHashMap<u32, Thread>,
    /// Times when recent threads ended, by tid.
    gone: HashMap<u32, u64>,
    /// Whether nothing reports now when threads run and wait.
    is_suspended: bool,
    /// Whether that was so at any time.
    was_suspended: bool,
}

/// After its reported end, a thread may still lose its processor once or twice within this time,
/// ns. Records from this time don't begin a new thread, unless a record says that the tid is
/// reused.
const GONE_NS: u64 = 1_000_000_000;
/// Number of ended threads that are remembered.
const MAX_GONE: usize = 1 << 15;

impl Threads {
    fn of(&mut self, pid: u32, tid: u32, time_ns: u64) -> &mut Thread {
        let thread = self.by_tid.entry(tid).or_insert_with(|| Thread {
            pid,
            first_ns: time_ns,
            ..Thread::default()
        });
        thread.pid = pid;
        thread
    }

    /// Notes that a thread began, perhaps with the tid of one that has ended.
    pub fn began(&mut self, pid: u32, tid: u32, time_ns: u64) {
        self.gone.remove(&tid);
        self.of(pid, tid, time_ns);
    }

    /// Whether a thread with this tid ended shortly before this time.
    pub fn is_gone(&self, tid: u32, time_ns: u64) -> bool {
        self.gone.get(&tid).is_some_and(|end_ns| time_ns < end_ns.saturating_add(GONE_NS))
    }

    /// Adds a thread that ran before it was sampled. `waits` says whether it is off its processor
    /// now.
    pub fn found(&mut self, pid: u32, tid: u32, time_ns: u64, waits: bool) {
        let is_suspended = self.is_suspended;
        let thread = self.of(pid, tid, time_ns);
        if is_suspended {
            return;
        }
        if waits {
            thread.off_since = Some((time_ns, false));
        } else {
            thread.on_since = Some(time_ns);
        }
    }

    /// Ends what all threads do: from now on, nothing reports when they run and wait.
    pub fn suspend(&mut self, time_ns: u64, out: &mut Vec<ThreadInterval>) {
        (self.is_suspended, self.was_suspended) = (true, true);
        for (tid, thread) in &mut self.by_tid {
            if let Some(since) = thread.on_since.take() {
                thread.ran(since, time_ns);
            }
            thread.close(*tid, time_ns, out);
            thread.emit_short(*tid, out);
            thread.emit_unsampled(*tid, out);
        }
    }

    /// Whether the threads were suspended at any time. Then their counts are too small.
    pub fn were_suspended(&self) -> bool {
        self.was_suspended
    }

    /// Whether nothing reports now when threads run and wait.
    pub fn are_suspended(&self) -> bool {
        self.is_suspended
    }

    /// Goes on with these threads: each has its pid and tid, and whether it is off its processor.
    pub fn resume(&mut self, threads: impl Iterator<Item = (u32, u32, bool)>, time_ns: u64) {
        self.is_suspended = false;
        for thread in self.by_tid.values_mut() {
            // A late record may have come after the suspension.
            (thread.on_since, thread.off_since, thread.leaving) = (None, None, None);
            (thread.left_at, thread.sampled, thread.looked) = (None, false, false);
            // Time that samples have counted in advance is still due.
            (thread.unsampled_ns, thread.first_ns) = (thread.unsampled_ns.min(0), time_ns);
        }
        for (pid, tid, waits) in threads {
            self.found(pid, tid, time_ns, waits);
        }
    }

    /// Applies a sample of a running thread. The sample stands for `period_ns`.
    pub fn sampled(&mut self, pid: u32, tid: u32, time_ns: u64, period_ns: u64) {
        if self.is_gone(tid, time_ns) {
            return;
        }
        let thread = self.of(pid, tid, time_ns);
        thread.unsampled_ns = thread.unsampled_ns.saturating_sub_unsigned(period_ns);
        thread.on_since.get_or_insert(time_ns);
    }

    /// Applies a sample of a thread that leaves its processor.
    pub fn leaves(
        &mut self,
        pid: u32,
        tid: u32,
        time_ns: u64,
        place: WaitSite,
        at: Option<Registers>,
    ) {
        if self.is_gone(tid, time_ns) {
            return;
        }
        let thread = self.of(pid, tid, time_ns);
        thread.leaving = Some(place);
        thread.left_at = at;
        thread.sampled = true;
    }

    /// Applies a record that a thread left its processor.
    pub fn left(&mut self, pid: u32, tid: u32, time_ns: u64, preempted: bool) {
        if self.is_gone(tid, time_ns) {
            return;
        }
        let thread = self.of(pid, tid, time_ns);
        if let Some(since) = thread.on_since.take() {
            thread.ran(since, time_ns);
        }
        thread.off_since = Some((time_ns, preempted));
        thread.looked = false;
        match preempted {
            true => thread.counts.involuntary += 1,
            false => thread.counts.voluntary += 1,
        }
    }

    /// Whether the counter that samples leaving threads took no sample of the thread's last long
    /// wait.
    pub fn is_passed_over(&self, tid: u32) -> bool {
        self.by_tid.get(&tid).is_some_and(|thread| thread.passed_over)
    }

    /// Returns the threads that have waited in an unknown place at least since `before_ns`. Each is
    /// returned once per wait.
    pub fn waits_unseen(&mut self, before_ns: u64) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        for (tid, thread) in &mut self.by_tid {
            let waits = thread.off_since.is_some_and(|(at, ready)| at <= before_ns && !ready);
            if waits && thread.leaving.is_none() && !thread.looked {
                thread.looked = true;
                found.push((thread.pid, *tid));
            }
        }
        found
    }

    /// Returns the threads that wait in a known place, perhaps for a descriptor, with their
    /// registers. Each is returned once per wait.
    pub fn waits_unnamed(&mut self, now_ns: u64) -> Vec<(u32, u32, Registers)> {
        let mut found = Vec::new();
        for (tid, thread) in &mut self.by_tid {
            let Some(at) = thread.left_at else { continue };
            let least_ns = match at.argument <= MAX_DESCRIPTOR {
                true => SHORT_WAIT_NS,
                // The argument is an address, so the thread waits in a call that polls, or for a
                // lock.
                false => LONG_WAIT_NS,
            };
            let since_ns = thread.off_since.filter(|(_, ready)| !ready).map(|(at_ns, _)| at_ns);
            let waits = since_ns.is_some_and(|at_ns| at_ns.saturating_add(least_ns) <= now_ns);
            if waits && thread.leaving.is_some() && !thread.looked {
                thread.looked = true;
                found.push((thread.pid, *tid, at));
            }
        }
        found
    }

    /// Adds a frame that names what a waiting thread waits for.
    pub fn waits_for(&mut self, tid: u32, frame: Frame) {
        if let Some(place) = self.by_tid.get_mut(&tid).and_then(|thread| thread.leaving.as_mut()) {
            place.frames.insert(0, frame);
        }
    }

    /// Sets the place of a wait, which was read during the wait.
    pub fn waits_at(&mut self, tid: u32, place: WaitSite) {
        if let Some(thread) = self.by_tid.get_mut(&tid).filter(|t| t.off_since.is_some()) {
            thread.leaving = Some(place);
        }
    }

    /// Applies a record that a thread came back to a processor.
    pub fn came(
        &mut self,
        pid: u32,
        tid: u32,
        cpu: u32,
        time_ns: u64,
        out: &mut Vec<ThreadInterval>,
    ) {
        if self.is_gone(tid, time_ns) {
            return;
        }
        let thread = self.of(pid, tid, time_ns);
        let moved = thread.last_cpu.replace(cpu).is_some_and(|last| last != cpu);
        thread.counts.migrations += u64::from(moved);
        thread.on_since = Some(time_ns);
        thread.close(tid, time_ns, out);
    }

    /// Returns the counts of a thread since the last call.
    pub fn take_counts(&mut self, tid: u32) -> Option<Counts> {
        self.by_tid.get_mut(&tid).map(|thread| std::mem::take(&mut thread.counts))
    }

    /// Returns pid and tid of all threads.
    pub fn all(&self) -> Vec<(u32, u32)> {
        self.by_tid.iter().map(|(tid, thread)| (thread.pid, *tid)).collect()
    }

    /// Notes that a thread ended, and emits its last intervals.
    pub fn ended(&mut self, tid: u32, time_ns: u64, out: &mut Vec<ThreadInterval>) {
        if self.gone.len() >= MAX_GONE {
            self.gone.retain(|_, end_ns| end_ns.saturating_add(GONE_NS) > time_ns);
        }
        self.gone.insert(tid, time_ns);
        let Some(mut thread) = self.by_tid.remove(&tid) else { return };
        if let Some(since) = thread.on_since.take() {
            thread.ran(since, time_ns);
        }
        thread.close(tid, time_ns, out);
        thread.emit_short(tid, out);
        thread.emit_unsampled(tid, out);
    }

    /// Emits the short intervals that were added up.
    pub fn emit(&mut self, out: &mut Vec<ThreadInterval>) {
        for (tid, thread) in &mut self.by_tid {
            thread.emit_short(*tid, out);
        }
    }

    /// Notes that a thread runs another program from now on. Emits what was added up, because it
    /// belongs to the previous program.
    pub fn replaced(&mut self, tid: u32, time_ns: u64, out: &mut Vec<ThreadInterval>) {
        let Some(thread) = self.by_tid.get_mut(&tid) else { return };
        if let Some(since) = thread.on_since.take() {
            thread.ran(since, time_ns);
        }
        thread.on_since = (!self.is_suspended).then_some(time_ns);
        thread.emit_short(tid, out);
        thread.emit_unsampled(tid, out);
        thread.first_ns = time_ns;
    }

    /// Ends all threads at the end of sampling, and emits their last intervals.
    pub fn end(&mut self, time_ns: u64, out: &mut Vec<ThreadInterval>) {
        let tids: Vec<u32> = self.by_tid.keys().copied().collect();
        for tid in tids {
            self.ended(tid, time_ns, out);
        }
    }

    /// Returns the threads of a process.
    pub fn of_process(&self, pid: u32) -> impl Iterator<Item = u32> + '_ {
        self.by_tid.iter().filter(move |(_, t)| t.pid == pid).map(|(tid, _)| *tid)
    }
}

impl Thread {
    /// Adds a time that the thread was on its processor. Sums of damaged times must not end the
    /// program.
    fn ran(&mut self, since_ns: u64, until_ns: u64) {
        let ran_ns = until_ns.saturating_sub(since_ns);
        self.unsampled_ns = self.unsampled_ns.saturating_add_unsigned(ran_ns);
    }

    /// Ends the time that the thread was off its processor.
    fn close(&mut self, tid: u32, time_ns: u64, out: &mut Vec<ThreadInterval>) {
        let place = self.leaving.take();
        let sampled = std::mem::take(&mut self.sampled);
        let Some((since, preempted)) = self.off_since.take() else { return };
        let kind = if preempted { Kind::Ready } else { Kind::Waited };
        let length_ns = time_ns.saturating_sub(since);
        self.passed_over =
            !sampled && (self.passed_over || (!preempted && length_ns >= SHORT_WAIT_NS));
        let short_ns = if preempted { SHORT_READY_NS } else { SHORT_WAIT_NS };
        if length_ns >= short_ns {
            let (pid, spread_ns) = (self.pid, None);
            out.push(ThreadInterval {
                pid,
                tid,
                time_ns: since,
                length_ns,
                spread_ns,
                kind,
                place,
            });
        } else {
            // For a preempted thread the place isn't needed, because samples show better where it
            // ran.
            let place = if preempted { None } else { place };
            let none = ShortIntervals { since_ns: since, until_ns: since, length_ns: 0, count: 0 };
            let short = self.short.entry((kind, place)).or_insert(none);
            short.until_ns = time_ns;
            short.length_ns = short.length_ns.saturating_add(length_ns);
            short.count += 1;
        }
    }

    fn emit_short(&mut self, tid: u32, out: &mut Vec<ThreadInterval>) {
        for ((kind, place), short) in self.short.drain() {
            let ShortIntervals { since_ns: time_ns, until_ns, length_ns, count } = short;
            let (pid, spread_ns) =
                (self.pid, (count > 1).then(|| until_ns.saturating_sub(time_ns)));
            out.push(ThreadInterval { pid, tid, time_ns, length_ns, spread_ns, kind, place });
        }
    }

    fn emit_unsampled(&mut self, tid: u32, out: &mut Vec<ThreadInterval>) {
        if self.unsampled_ns > 0 {
            out.push(ThreadInterval {
                pid: self.pid,
                tid,
                time_ns: self.first_ns,
                length_ns: self.unsampled_ns as u64,
                spread_ns: None,
                kind: Kind::Ran,
                place: None,
            });
            self.unsampled_ns = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspended_threads_go_on_where_they_are_found() {
        let ms = 1_000_000;
        let (mut threads, mut out) = (Threads::default(), Vec::new());
        threads.came(1, 2, 0, 0, &mut out);
        threads.came(1, 3, 0, 0, &mut out);
        threads.left(1, 3, 4 * ms, false);
        threads.suspend(10 * ms, &mut out);
        // What ran and waited until then is known, and nothing is until the threads are resumed.
        let parts = |out: &[ThreadInterval]| {
            let mut parts: Vec<_> = (out.iter())
                .map(|one| (one.tid, one.kind, one.time_ns / ms, one.length_ns / ms))
                .collect();
            parts.sort_by_key(|part| (part.0, part.2, part.3));
            parts
        };
        let first = [(2, Kind::Ran, 0, 10), (3, Kind::Ran, 0, 4), (3, Kind::Waited, 4, 6)];
        assert_eq!(parts(&out), first);
        // A record that was written late doesn't count.
        threads.left(1, 2, 9 * ms, false);
        threads.resume([(1, 2, false), (1, 3, true), (1, 4, true)].into_iter(), 50 * ms);
        assert_eq!(threads.waits_unseen(60 * ms).len(), 2);
        out.clear();
        threads.end(80 * ms, &mut out);
        let then = [(2, Kind::Ran, 50, 30), (3, Kind::Waited, 50, 30), (4, Kind::Waited, 50, 30)];
        assert_eq!(parts(&out), then);
        assert!(threads.were_suspended());
    }

    #[test]
    fn running_ready_and_waiting_times_add_up_to_a_threads_life() {
        let ms = 1_000_000;
        let (mut threads, mut out) = (Threads::default(), Vec::new());
        threads.came(1, 2, 0, 0, &mut out);
        threads.sampled(1, 2, 10 * ms, 10 * ms);
        threads.left(1, 2, 15 * ms, true);
        threads.came(1, 2, 0, 18 * ms, &mut out);
        let place = WaitSite { frames: vec![Frame::Address(7)], ..WaitSite::default() };
        threads.leaves(1, 2, 20 * ms, place.clone(), None);
        threads.left(1, 2, 20 * ms, false);
        threads.came(1, 2, 1, 50 * ms, &mut out);
        for n in 0..5 {
            threads.left(1, 2, 51 * ms + n * 1000, false);
            threads.came(1, 2, 0, 51 * ms + n * 1000 + 500, &mut out);
        }
        let counts = Counts { voluntary: 6, involuntary: 1, migrations: 2 };
        assert_eq!(threads.take_counts(2), Some(counts));
        threads.ended(2, 60 * ms, &mut out);
        let sum =
            |kind| -> u64 { out.iter().filter(|s| s.kind == kind).map(|s| s.length_ns).sum() };
        assert_eq!(sum(Kind::Ready), 3 * ms);
        assert_eq!(sum(Kind::Waited), 30 * ms + 2500);
        assert_eq!(10 * ms + sum(Kind::Ran), 60 * ms - 33 * ms - 2500);
        let waits: Vec<_> = out.iter().filter(|s| s.kind == Kind::Waited).collect();
        assert_eq!(waits.len(), 2, "short waits are added up");
        assert_eq!([waits[0].spread_ns, waits[1].spread_ns], [None, Some(4500)]);
        assert_eq!(waits[0].place, Some(place));
    }

    #[test]
    fn late_records_of_an_ended_thread_do_not_begin_another() {
        let ms = 1_000_000;
        let (mut threads, mut out) = (Threads::default(), Vec::new());
        threads.came(1, 2, 0, 0, &mut out);
        threads.ended(2, ms, &mut out);
        threads.left(1, 2, ms + 1000, true);
        threads.came(1, 2, 0, ms + 2000, &mut out);
        assert_eq!(threads.of_process(1).next(), None);
        threads.began(1, 2, 0);
        threads.came(1, 2, 0, 2 * ms, &mut out);
        assert_eq!(threads.of_process(1).next(), Some(2));
    }

    #[test]
    fn times_that_no_clock_shows_do_not_overflow() {
        let (mut threads, mut out) = (Threads::default(), Vec::new());
        for _ in 0..3 {
            threads.came(1, 2, 0, 1, &mut out);
            threads.left(1, 2, u64::MAX, false);
        }
        threads.sampled(1, 3, 1, u64::MAX);
        threads.sampled(1, 3, 1, u64::MAX);
        assert_eq!(threads.waits_unnamed(u64::MAX), []);
        threads.end(u64::MAX, &mut out);
        assert!(out.iter().any(|s| s.tid == 2 && s.kind == Kind::Ran));
    }

    #[test]
    fn each_program_of_a_thread_has_the_time_that_it_ran() {
        let ms = 1_000_000;
        let (mut threads, mut out) = (Threads::default(), Vec::new());
        threads.came(1, 1, 0, 0, &mut out);
        threads.left(1, 1, 2 * ms, false);
        threads.came(1, 1, 0, 2 * ms + 500, &mut out);
        threads.replaced(1, 5 * ms, &mut out);
        let old = std::mem::take(&mut out);
        threads.ended(1, 9 * ms, &mut out);
        let times = |intervals: &[ThreadInterval]| -> Vec<(u64, u64, Kind)> {
            intervals.iter().map(|s| (s.time_ns, s.length_ns, s.kind)).collect()
        };
        let ran = 5 * ms - 500;
        assert_eq!(times(&old), [(2 * ms, 500, Kind::Waited), (0, ran, Kind::Ran)]);
        assert_eq!(times(&out), [(5 * ms, 4 * ms, Kind::Ran)]);
    }
}
