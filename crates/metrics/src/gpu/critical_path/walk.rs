//! Finds the critical path. It walks from the end of a window back to its start. Each step goes to
//! the event that the current event waited for; if there are several, to the one that ended last.
//!
//! - Device work waited for the latest of four things: the work before it on its stream, work of
//!   another stream through an event, work of the same graph launch, or its own launch. If the
//!   trace has no events, a late start needs another cause: work that started long after all of
//!   these waited for the work of its process that ended last.
//! - A host call that returned after device work was done waited for that work, if the work ended
//!   during the call.
//! - A thread with nothing to do waited for the thread of its process that was the last to finish
//!   an operator or call.
//! - All other host time is the thread's own.
//!
//! So the parts of the path touch each other, and their lengths add up to the window.

use rustc_hash::FxHashMap;
use tprof_rank::base::intervals::Interval;
use tprof_rank::base::parallel;
use tprof_rank::{Class, Needs, RankTrace, Work};
use tprof_trace::model::NameId;

use super::causes::{Causes, causes};
use super::path::{Bound, Path, Segment};
use super::timeline::{HostThreads, threads};

/// Finds the critical path through a window; `None` if nothing ran in it.
pub fn critical_path(rank: &RankTrace, window: Interval) -> Option<Path> {
    let of_threads = || {
        let threads = threads(rank.nested(Needs::ALL_SPANS).map(|(span, _)| span));
        (BusyEnds::of(&threads), threads)
    };
    let ((ends, threads), causes) = parallel::both(rank.cores, of_threads, || causes(rank));
    let walk = PathWalk {
        rank,
        ends,
        threads,
        causes,
        window,
        path: Vec::new(),
        parts: Vec::new(),
        now: window.end,
    };
    walk.run()
}

/// If work starts within this time after its launch call, or after the end of the work before it,
/// the gap needs no other cause. A launch takes some 5 µs to reach an idle device, and twice that
/// under a profiler.
const NO_CAUSE_NEEDED_NS: u64 = 10_000;

/// The current position of the walk.
#[derive(Clone, Copy, Debug)]
enum WalkPosition {
    /// A point on a thread.
    Thread(u32),
    /// The end of a piece of device work.
    Work(u32),
}

struct PathWalk<'r, 'a> {
    rank: &'r RankTrace<'a>,
    threads: HostThreads,
    ends: BusyEnds,
    causes: Causes,
    window: Interval,
    /// The parts found so far, from the last to the first.
    path: Vec<Segment>,
    /// A buffer for the parts of a thread's time, kept to reuse its memory.
    parts: Vec<(Interval, NameId)>,
    now: u64,
}

/// The busy intervals of the threads in each process with several threads, in order of end. Each
/// entry is the end, the start and the thread.
struct BusyEnds {
    by_process: FxHashMap<u32, Vec<(u64, u64, u32)>>,
}

impl BusyEnds {
    fn of(threads: &HostThreads) -> BusyEnds {
        let mut by_process: FxHashMap<u32, Vec<(u64, u64, u32)>> = FxHashMap::default();
        let mut of_process: FxHashMap<u32, usize> = FxHashMap::default();
        threads.values().for_each(|thread| *of_process.entry(thread.process).or_default() += 1);
        // In a process with only one thread, the walk has no other thread to continue on.
        for (index, thread) in threads.iter().filter(|(_, one)| of_process[&one.process] > 1) {
            let rows = by_process.entry(thread.process).or_default();
            rows.extend(thread.busy.parts().iter().map(|busy| (busy.end, busy.start, *index)));
        }
        by_process.values_mut().for_each(|rows| rows.sort_unstable());
        BusyEnds { by_process }
    }

    /// Returns the thread of a process whose busy interval ended last up to a moment, and that end.
    fn last_before(&self, process: u32, time_ns: u64) -> Option<(u64, u32)> {
        let rows = self.by_process.get(&process)?;
        let after = rows.partition_point(|(end, ..)| *end <= time_ns);
        rows[..after].last().map(|&(end, _, thread)| (end, thread))
    }
}

impl PathWalk<'_, '_> {
    fn run(mut self) -> Option<Path> {
        let mut place = self.last_place()?;
        // Every step goes back in time, or to earlier work at the same moment, so the walk ends.
        // The limit protects against traces that break this rule.
        let mut steps_left = 4 * (self.rank.work.len() + self.ends_count()) + 16;
        while self.now > self.window.start && steps_left > 0 {
            steps_left -= 1;
            place = match place {
                WalkPosition::Work(work) => match self.work(work) {
                    Some(place) => place,
                    None => break,
                },
                WalkPosition::Thread(thread) => self.thread(thread),
            };
        }
        self.step_to(self.window.start, Bound::Unknown, NameId(0));
        self.path.reverse();
        Some(Path { segments: self.path })
    }

    fn ends_count(&self) -> usize {
        let busy: usize = self.threads.values().map(|thread| thread.busy.parts().len()).sum();
        busy + self.causes.blocked.values().map(Vec::len).sum::<usize>()
    }

    /// Returns the position of the thread or work that ended last within the window or still ran at
    /// its end. Moves the window's end to that moment.
    fn last_place(&mut self) -> Option<WalkPosition> {
        let end = self.window.end;
        let (mut best, mut at) = (0, None);
        for (index, thread) in &self.threads {
            if let Some(busy) = thread.busy_before(end) {
                let over = busy.end.min(end);
                if over > best || (over == best && at.is_some_and(|(_, other)| other > *index)) {
                    (best, at) = (over, Some((WalkPosition::Thread(*index), *index)));
                }
            }
        }
        let mut place = at.map(|(place, _)| place);
        for (work, index) in self.rank.work.iter().zip(0_u32..) {
            let over = work.end_ns().min(end);
            if work.start_ns <= end && over > best {
                (best, place) = (over, Some(WalkPosition::Work(index)));
            }
        }
        let place = place.filter(|_| best > self.window.start)?;
        self.window.end = best;
        self.now = best;
        Some(place)
    }

    /// Adds a part from a moment to the current time, and makes that moment the current time.
    fn step_to(&mut self, time_ns: u64, bound: Bound, name: NameId) {
        let time_ns = time_ns.max(self.window.start);
        if time_ns < self.now {
            let interval = Interval::new(time_ns, self.now);
            self.path.push(Segment { interval, bound, name });
            self.now = time_ns;
        }
    }

    /// Goes from a piece of work back to the event that it waited for; `None` if the trace doesn't
    /// show that event.
    fn work(&mut self, at: u32) -> Option<WalkPosition> {
        let work = self.rank.work[at as usize];
        self.step_to(work.start_ns, bound_of(&work), work.name);
        let launch = self.rank.launches.call_of(at as usize);
        let launched_ns = launch.map(|call| self.rank.calls[call].start_ns);
        let last = self.last_before(at, launch);
        let last_end = last.map(|last| self.rank.work[last as usize].end_ns());
        match (last, launch) {
            (Some(last), _) if last_end > launched_ns => {
                let end = self.rank.work[last as usize].end_ns();
                // A long gap needs a cause. If the trace lacks the work's launch, the work may have
                // waited for that launch rather than for other work.
                let is_long = work.start_ns - end > NO_CAUSE_NEEDED_NS;
                let unknown = launch.is_none() && is_long;
                let bound = if unknown { Bound::Unknown } else { Bound::KernelGap };
                self.step_to(end, bound, work.name);
                Some(WalkPosition::Work(last))
            }
            (_, Some(call)) => {
                let call = self.rank.calls[call];
                self.step_to(call.start_ns, Bound::Launch, work.name);
                Some(WalkPosition::Thread(call.thread))
            }
            _ => None,
        }
    }

    /// Returns the work that ended last among the work for which this piece may have waited.
    fn last_before(&self, at: u32, launch: Option<usize>) -> Option<u32> {
        let work = &self.rank.work[at as usize];
        let end = |at: &u32| self.rank.work[*at as usize].end_ns();
        // Only work that comes earlier in order of start counts, so that the walk can't go in
        // circles.
        let over = |other: &u32| *other < at && end(other) <= work.start_ns;
        let same_stream = self.causes.before[at as usize];
        let awaited = self.causes.awaited.get(&at).map_or(&[][..], Vec::as_slice);
        let graph = launch.map_or(&[][..], |call| self.rank.launches.work_of(call));
        // Nodes of a graph depend on each other in ways that the trace doesn't record, so each
        // earlier node may be the cause. They are searched from the nearest one back.
        let place = graph.partition_point(|other| *other < at);
        let siblings = graph[..place].iter().rev().take(16);
        let others = same_stream.iter().chain(awaited).chain(siblings);
        let known =
            others.filter(|other| over(other)).copied().max_by_key(|other| (end(other), *other));
        let returned_ns = launch.map(|call| self.rank.calls[call].end_ns());
        let ready_ns = known.map(|known| end(&known)).max(returned_ns).unwrap_or(0);
        if !self.rank.synchronizations.is_empty()
            || work.start_ns.saturating_sub(ready_ns) <= NO_CAUSE_NEEDED_NS
        {
            return known;
        }
        let by_end = &self.causes.by_end;
        let after = by_end.partition_point(|other| end(other) <= work.start_ns);
        let process = self.rank.stream(work).process;
        let of_process = |other: &u32| {
            over(other) && self.rank.stream(&self.rank.work[*other as usize]).process == process
        };
        // Search the work that ended after the known cause and before this work began, latest end
        // first.
        let recent = by_end[..after].iter().rev().take(64).copied();
        recent.take_while(|other| end(other) > ready_ns).find(of_process).or(known)
    }

    /// Goes back on a thread to the moment at which the thread waited.
    fn thread(&mut self, index: u32) -> WalkPosition {
        let here = WalkPosition::Thread(index);
        let Some(thread) = self.threads.get(&index) else {
            self.step_to(self.window.start, Bound::Unknown, NameId(0));
            return here;
        };
        let busy = thread.busy_before(self.now);
        let Some(busy) = busy.filter(|busy| busy.end >= self.now) else {
            return self.idle_thread(index, busy.map(|busy| busy.end));
        };
        let blocked = self.causes.blocked.get(&index).map_or(&[][..], Vec::as_slice);
        let after = blocked.partition_point(|blocked| blocked.end_ns <= self.now);
        let blocked = blocked[..after].last().filter(|blocked| blocked.end_ns > busy.start);
        if let Some(&blocked) = blocked {
            self.host_to(index, blocked.end_ns);
            let name = self.rank.calls[blocked.call as usize].name;
            self.step_to(blocked.work_end_ns, Bound::Return, name);
            return WalkPosition::Work(blocked.work);
        }
        self.host_to(index, busy.start);
        here
    }

    /// Goes back from an idle thread to the thread of its process that was busy last. If that is
    /// the thread itself, goes to the end of its own last busy interval.
    fn idle_thread(&mut self, index: u32, since_ns: Option<u64>) -> WalkPosition {
        let process = self.threads[&index].process;
        let since_ns = since_ns.unwrap_or(0);
        match self.ends.last_before(process, self.now) {
            Some((end, thread)) if thread != index && end >= since_ns => {
                self.host_to(index, end);
                WalkPosition::Thread(thread)
            }
            _ => {
                self.host_to(index, since_ns);
                WalkPosition::Thread(index)
            }
        }
    }

    /// Adds a thread's own time from a moment to the current time, divided by the innermost spans.
    fn host_to(&mut self, thread: u32, time_ns: u64) {
        let interval = Interval::new(time_ns.max(self.window.start), self.now);
        let mut parts = std::mem::take(&mut self.parts);
        self.threads[&thread].cut(interval, &mut parts);
        for &(part, name) in parts.iter().rev() {
            let bound = if name == NameId(0) { Bound::Untraced } else { Bound::Host };
            self.step_to(part.start, bound, name);
        }
        self.parts = parts;
    }
}

fn bound_of(work: &Work) -> Bound {
    match work.class {
        Class::Communication => Bound::Communication,
        Class::Memory => Bound::Copy,
        Class::Compute | Class::Other => Bound::Compute,
    }
}
