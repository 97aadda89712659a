//! Follows each thread between its samples: when it left its processor and came back, and therefore
//! how long it ran, was ready, and waited.

use super::sample::{Counts, Frame, Kind};
use crate::perf::record::Registers;
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use tprof_trace::model::ThreadState;

/// Shorter waits are added up by thread and place, ns.
const SHORT_WAIT_NS: u64 = 1_000_000;
/// A wait in a call that polls or that locks is looked up if it lasts this long, ns.
const LONG_WAIT_NS: u64 = 10_000_000;
/// An argument that is smaller may be a descriptor; addresses are larger.
const MAX_DESCRIPTOR: u64 = 1 << 16;
/// Shorter times of being ready are added up as well, ns.
const SHORT_READY_NS: u64 = 20_000_000;

/// The place of a thread when it left its processor, and what it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WaitSite {
    /// Frames, innermost first; empty if its stack could not be read.
    pub frames: Vec<Frame>,
    /// The reason why the frames end.
    pub end: u8,
    /// The kind of its wait, if its system call shows that.
    pub waits_for: Option<ThreadState>,
}

/// An interval in the life of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadInterval {
    /// Pid of the process.
    pub pid: u32,
    /// Tid of the thread.
    pub tid: u32,
    /// Time of its beginning. If several were added up, it is the beginning of the first one.
    pub time_ns: u64,
    /// Length of the interval, ns.
    pub length_ns: u64,
    /// If several were added up, or the exact time is unknown: the time lies within this many
    /// nanoseconds from the beginning on.
    pub spread_ns: Option<u64>,
    /// The activity of the thread.
    pub kind: Kind,
    /// Where the thread was, if that is known.
    pub place: Option<WaitSite>,
}

#[derive(Debug, Default)]
struct Thread {
    pid: u32,
    /// Time since which it is on its processor.
    on_since: Option<u64>,
    /// Time since which it is off its processor, and whether it was preempted.
    off_since: Option<(u64, bool)>,
    /// Where it was when it left, according to a sample or to a reading during the wait.
    leaving: Option<WaitSite>,
    /// Whether the counter sampled it as it left.
    sampled: bool,
    /// Its registers at that moment. The argument is the first one of its system call.
    left_at: Option<Registers>,
    /// Whether it was read while it waited.
    looked: bool,
    /// Whether its last wait that was not short had no sample.
    passed_over: bool,
    /// Exact time on processors that no sample covers yet, ns.
    unsampled_ns: i64,
    first_ns: u64,
    counts: Counts,
    last_cpu: Option<u32>,
    /// Short intervals by kind and place.
    short: HashMap<(Kind, Option<WaitSite>), ShortIntervals>,
}

/// Short intervals that are added up.
#[derive(Clone, Copy, Debug)]
struct ShortIntervals {
    /// Beginning of the first one.
    since_ns: u64,
    /// End of the last one.
    until_ns: u64,
    length_ns: u64,
    count: u64,
}

/// All threads that are followed.
#[derive(Debug, Default)]
pub struct Threads {
    by_tid: FxHashMap<u32, Thread>,
    /// Times when threads ended, by tid.
    gone: HashMap<u32, u64>,
}

/// Time after the reported end of a thread in which it may still lose its processor, once or twice.
/// Records of that time don't begin a new thread, unless its tid is reused.
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

    /// Notes that a thread began.
    pub fn began(&mut self, tid: u32) {
        self.gone.remove(&tid);
    }

    /// Whether a thread ended a moment ago.
    pub fn is_gone(&self, tid: u32, time_ns: u64) -> bool {
        self.gone.get(&tid).is_some_and(|end_ns| time_ns < end_ns.saturating_add(GONE_NS))
    }

    /// Adds a thread that ran before it was watched. `waits` says that it is off its processor.
    pub fn found(&mut self, pid: u32, tid: u32, time_ns: u64, waits: bool) {
        let thread = self.of(pid, tid, time_ns);
        if waits {
            thread.off_since = Some((time_ns, false));
        } else {
            thread.on_since = Some(time_ns);
        }
    }

    /// Applies a sample of a running thread, which covers `period_ns`.
    pub fn sampled(&mut self, pid: u32, tid: u32, time_ns: u64, period_ns: u64) {
        if self.is_gone(tid, time_ns) {
            return;
        }
        let thread = self.of(pid, tid, time_ns);
        thread.unsampled_ns -= period_ns as i64;
        thread.on_since.get_or_insert(time_ns);
    }

    /// Applies a sample of a thread that leaves its processor, with its registers.
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

    /// Applies the record that a thread left its processor.
    pub fn left(&mut self, pid: u32, tid: u32, time_ns: u64, preempted: bool) {
        if self.is_gone(tid, time_ns) {
            return;
        }
        let thread = self.of(pid, tid, time_ns);
        if let Some(since) = thread.on_since.take() {
            thread.unsampled_ns += time_ns.saturating_sub(since) as i64;
        }
        thread.off_since = Some((time_ns, preempted));
        thread.looked = false;
        match preempted {
            true => thread.counts.involuntary += 1,
            false => thread.counts.voluntary += 1,
        }
    }

    /// Whether the counter that samples threads as they leave took no sample of the thread's last
    /// wait, though the wait was not short.
    pub fn is_passed_over(&self, tid: u32) -> bool {
        self.by_tid.get(&tid).is_some_and(|thread| thread.passed_over)
    }

    /// Returns the threads that have waited in an unknown place since `before_ns` or longer and
    /// that were not returned before.
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

    /// Returns the threads that wait in a known place, perhaps for a descriptor, and that were not
    /// returned before in this wait.
    pub fn waits_unnamed(&mut self, now_ns: u64) -> Vec<(u32, u32, Registers)> {
        let mut found = Vec::new();
        for (tid, thread) in &mut self.by_tid {
            let Some(at) = thread.left_at else { continue };
            let least_ns = match at.argument <= MAX_DESCRIPTOR {
                true => SHORT_WAIT_NS,
                // The thread waits in a call that polls, or for a lock.
                false => LONG_WAIT_NS,
            };
            let since_ns = thread.off_since.filter(|(_, ready)| !ready).map(|(at_ns, _)| at_ns);
            let waits = since_ns.is_some_and(|at_ns| at_ns + least_ns <= now_ns);
            if waits && thread.leaving.is_some() && !thread.looked {
                thread.looked = true;
                found.push((thread.pid, *tid, at));
            }
        }
        found
    }

    /// Adds the frame that names what a thread waits for.
    pub fn waits_for(&mut self, tid: u32, frame: Frame) {
        if let Some(place) = self.by_tid.get_mut(&tid).and_then(|thread| thread.leaving.as_mut()) {
            place.frames.insert(0, frame);
        }
    }

    /// Sets the place where a thread was found to wait.
    pub fn waits_at(&mut self, tid: u32, place: WaitSite) {
        if let Some(thread) = self.by_tid.get_mut(&tid).filter(|t| t.off_since.is_some()) {
            thread.leaving = Some(place);
        }
    }

    /// Applies the record that a thread came back to a processor.
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

    /// Returns the counts of a thread so far, and resets them.
    pub fn take_counts(&mut self, tid: u32) -> Option<Counts> {
        self.by_tid.get_mut(&tid).map(|thread| std::mem::take(&mut thread.counts))
    }

    /// Returns all processes and threads.
    pub fn all(&self) -> Vec<(u32, u32)> {
        self.by_tid.iter().map(|(tid, thread)| (thread.pid, *tid)).collect()
    }

    /// Notes that a thread ended, and emits its last intervals.
    pub fn ended(&mut self, tid: u32, time_ns: u64, out: &mut Vec<ThreadInterval>) {
        if self.gone.len() >= MAX_GONE {
            self.gone.retain(|_, end_ns| *end_ns + GONE_NS > time_ns);
        }
        self.gone.insert(tid, time_ns);
        let Some(mut thread) = self.by_tid.remove(&tid) else { return };
        if let Some(since) = thread.on_since.take() {
            thread.unsampled_ns += time_ns.saturating_sub(since) as i64;
        }
        thread.close(tid, time_ns, out);
        thread.emit_short(tid, out);
        thread.emit_unsampled(tid, out);
    }

    /// Emits the intervals that were added up.
    pub fn emit(&mut self, out: &mut Vec<ThreadInterval>) {
        for (tid, thread) in &mut self.by_tid {
            thread.emit_short(*tid, out);
        }
    }

    /// Notes that a thread runs another program from now on. The intervals that were added up
    /// belong to the old program and are emitted.
    pub fn replaced(&mut self, tid: u32, time_ns: u64, out: &mut Vec<ThreadInterval>) {
        let Some(thread) = self.by_tid.get_mut(&tid) else { return };
        if let Some(since) = thread.on_since.replace(time_ns) {
            thread.unsampled_ns += time_ns.saturating_sub(since) as i64;
        }
        thread.emit_short(tid, out);
        thread.emit_unsampled(tid, out);
        thread.first_ns = time_ns;
    }

    /// Ends all open intervals at the end of the run.
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
    /// Ends the time off the processor.
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
            // If the thread was preempted, samples show better where it ran.
            let place = if preempted { None } else { place };
            let none = ShortIntervals { since_ns: since, until_ns: since, length_ns: 0, count: 0 };
            let short = self.short.entry((kind, place)).or_insert(none);
            short.until_ns = time_ns;
            short.length_ns += length_ns;
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
    fn running_ready_and_waiting_add_up_to_the_life_of_a_thread() {
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
    fn late_records_of_an_ended_thread_begin_no_other() {
        let ms = 1_000_000;
        let (mut threads, mut out) = (Threads::default(), Vec::new());
        threads.came(1, 2, 0, 0, &mut out);
        threads.ended(2, ms, &mut out);
        threads.left(1, 2, ms + 1000, true);
        threads.came(1, 2, 0, ms + 2000, &mut out);
        assert_eq!(threads.of_process(1).next(), None);
        threads.began(2);
        threads.came(1, 2, 0, 2 * ms, &mut out);
        assert_eq!(threads.of_process(1).next(), Some(2));
    }

    #[test]
    fn each_program_of_a_thread_gets_its_own_time() {
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
