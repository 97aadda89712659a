//! Divides all of a device's time into work by class and idle time by cause.

use rustc_hash::FxHashMap;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{RankTrace, WorkKind};
use tprof_trace::model::CopyKind;

use super::beginning::RecordingStart;
use super::cause::{CAUSES, IdleCause};
use super::gaps::{Gap, LAUNCH_NS};
use super::threads::{ExplainedIdle, Threads};
use super::timeline::NO_CALL;
use crate::host::Place;

/// The longest time, in ns, in which a launch reaches an idle device. Typically it takes 2 to 20
/// us.
const ARRIVES_NS: u64 = 20_000;

/// The time of a device, or of several as one, within a window.
#[derive(Debug, Default)]
pub struct Waterfall {
    /// Length of the window, ns.
    pub window_ns: u64,
    /// Time with compute, with or without other work, ns.
    pub compute_ns: u64,
    /// Communication without compute, ns.
    pub communication_ns: u64,
    /// Time with copies and memsets but without compute and communication, by direction; most
    /// first.
    pub copies: Vec<(CopyKind, u64)>,
    /// All idle time, in order of time. Each idle nanosecond is in one interval.
    pub idle: Vec<ExplainedIdle>,
}

/// The time in which a device was busy, by class.
pub struct BusyTimes<'b> {
    /// Time in which anything ran: a kernel, a copy or a memset.
    pub any: &'b Cover,
    /// Time in which kernels computed.
    pub compute: &'b Cover,
    /// Time in which kernels communicated.
    pub communication: &'b Cover,
}

impl Waterfall {
    /// Computes the waterfall of some work within a window. `work` is the work of one device, or of
    /// all devices as one ([`RankTrace::work_by_device`]).
    pub fn of(
        rank: &RankTrace<'_>,
        (threads, beginning): (&Threads, &RecordingStart),
        window: &Cover,
        busy: &BusyTimes<'_>,
        work: &[u32],
    ) -> Waterfall {
        let compute = busy.compute.intersection(window);
        let communication = busy.communication.intersection(window).without(&compute);
        let any = busy.any.intersection(window);
        let alone = any.without(&compute).without(&communication);
        let idle = window.without(&any);
        Waterfall {
            window_ns: window.length(),
            compute_ns: compute.length(),
            communication_ns: communication.length(),
            copies: copies(rank, &alone, work),
            idle: explained(rank, (threads, beginning), &idle, work),
        }
    }

    /// Returns the time in which nothing ran, ns.
    #[cfg(test)]
    pub fn idle_ns(&self) -> u64 {
        self.idle.iter().map(|one| one.interval.length()).sum()
    }

    /// Returns the idle time with one cause, ns.
    pub fn ns(&self, cause: IdleCause) -> u64 {
        self.of_cause(cause).map(|one| one.interval.length()).sum()
    }

    /// Returns the idle intervals with one cause, as a cover.
    pub fn cover(&self, cause: IdleCause) -> Cover {
        Cover::of(self.of_cause(cause).map(|one| one.interval))
    }

    /// Returns the idle time by cause, most first. Causes without idle time are left out.
    pub fn causes(&self) -> Vec<(IdleCause, u64)> {
        let mut causes: Vec<(IdleCause, u64)> =
            CAUSES.map(|cause| (cause, self.ns(cause))).into_iter().collect();
        causes.retain(|(_, ns)| *ns > 0);
        causes.sort_rows_by_key(|(cause, ns)| (std::cmp::Reverse(*ns), *cause));
        causes
    }

    /// Returns the idle intervals with one cause, in order.
    pub fn of_cause(&self, cause: IdleCause) -> impl Iterator<Item = &ExplainedIdle> {
        self.idle.iter().filter(move |one| one.cause == cause)
    }

    /// Returns the calls that kept the device waiting for one cause, each with its idle time, in
    /// order.
    pub fn calls(&self, cause: IdleCause) -> Vec<(usize, u64)> {
        let mut sums: FxHashMap<u32, u64> = FxHashMap::default();
        for one in self.of_cause(cause).filter(|one| one.call != NO_CALL) {
            *sums.entry(one.call).or_default() += one.interval.length();
        }
        let mut calls: Vec<(usize, u64)> =
            sums.into_iter().map(|(call, ns)| (call as usize, ns)).collect();
        calls.sort_unstable();
        calls
    }

    /// Returns the places in the code of the threads that kept the device waiting for one cause.
    /// Each place comes with the time that its samples stand for, most time first. The times are
    /// estimates and don't cover all of the idle time.
    pub fn places(
        &self,
        rank: &RankTrace<'_>,
        threads: &Threads,
        cause: IdleCause,
    ) -> Vec<(Place, u64)> {
        let mut times: FxHashMap<u32, Vec<Interval>> = FxHashMap::default();
        for one in self.of_cause(cause) {
            let of = times.entry(threads.with_lines(one.thread)).or_default();
            let call = (one.call != NO_CALL).then(|| rank.calls[one.call as usize].interval());
            // The call may begin while the device still works, so look at all of the call's time
            // and not only at the gap.
            of.extend(call);
            // The memory was needed for something else than the work that is launched after the
            // memory call, so the code that runs in the rest of the gap doesn't count.
            if cause != IdleCause::Allocation || call.is_none() {
                of.push(one.interval);
            }
        }
        let times = times.into_iter().map(|(thread, of)| (thread, Cover::of(of))).collect();
        threads.places(&times)
    }
}

/// Returns the place with the most time, after adding up all parts of one line. The user's own code
/// takes precedence over other code with a file, and that over code without a file.
pub fn main_line(places: &[(Place, u64)]) -> Option<&Place> {
    let mut sums: FxHashMap<(&str, &str, u32), (&Place, u64)> = FxHashMap::default();
    for (place, ns) in places {
        let key = (&*place.function, &*place.file, place.line);
        let sum = &mut sums.entry(key).or_insert((place, 0)).1;
        *sum = sum.saturating_add(*ns);
    }
    let most = sums.into_iter().max_by_key(|(key, (place, ns))| {
        (!place.file.is_empty(), place.is_own, *ns, std::cmp::Reverse(*key))
    });
    most.map(|(_, (place, _))| place)
}

/// Returns the time of copies and memsets by direction. If several ran at once, the time counts for
/// one of them.
fn copies(rank: &RankTrace<'_>, alone: &Cover, work: &[u32]) -> Vec<(CopyKind, u64)> {
    let mut by_kind: FxHashMap<CopyKind, Vec<Interval>> = FxHashMap::default();
    for row in work.iter().map(|at| &rank.work[*at as usize]) {
        if let WorkKind::Copy { kind, .. } = row.kind {
            by_kind.entry(kind).or_default().push(row.interval());
        }
    }
    let mut kinds: Vec<(CopyKind, Cover)> =
        by_kind.into_iter().map(|(kind, times)| (kind, Cover::of(times))).collect();
    kinds.sort_rows_by_key(|(kind, cover)| (std::cmp::Reverse(alone.shared(cover)), *kind as u8));
    let mut rest = alone.clone();
    let mut found = Vec::new();
    for (kind, cover) in kinds {
        let ns = rest.shared(&cover);
        if ns > 0 {
            found.push((kind, ns));
            rest = rest.without(&cover);
        }
    }
    found
}

/// Divides the idle intervals by their causes.
fn explained(
    rank: &RankTrace<'_>,
    (threads, beginning): (&Threads, &RecordingStart),
    idle: &Cover,
    work: &[u32],
) -> Vec<ExplainedIdle> {
    let unknown = beginning.unknown(rank, &Gap::all(rank, idle, work), work);
    let mut found: Vec<ExplainedIdle> = Vec::new();
    let mut next = 0;
    for &gap in idle.parts() {
        let starts = |at: usize| rank.work[work[at] as usize].start_ns;
        while next < work.len() && starts(next) < gap.end {
            next += 1;
        }
        let of = |interval, cause| ExplainedIdle { interval, cause, thread: 0, call: NO_CALL };
        let unknown = unknown.within(gap);
        for &interval in unknown.parts() {
            found.push(of(interval, IdleCause::Unknown));
        }
        for &gap in Cover::of([gap]).without(&unknown).parts() {
            if next == work.len() {
                found.push(of(gap, IdleCause::End));
                continue;
            }
            // If several pieces of work begin together, the one that was launched first ended the
            // gap.
            let first_ns = starts(next);
            let together = (next..work.len()).take_while(|at| starts(*at) == first_ns);
            let calls = together.filter_map(|at| rank.launches.call_of(work[at] as usize));
            match calls.min() {
                None if next == 0 => found.push(of(gap, IdleCause::Start)),
                None => found.push(of(gap, IdleCause::Unknown)),
                Some(call) => of_gap(rank, threads, gap, call, &mut found),
            }
        }
    }
    found.sort_by_key(|one| one.interval);
    found
}

/// Explains the idle time up to the start of work that a recorded call launched.
fn of_gap(
    rank: &RankTrace<'_>,
    threads: &Threads,
    gap: Interval,
    call: usize,
    found: &mut Vec<ExplainedIdle>,
) {
    let launch = &rank.calls[call];
    // If the launch had returned before the gap began, its work is still on the way to the device.
    let arrives_ns = match launch.end_ns() <= gap.start {
        true => launch.end_ns().saturating_add(ARRIVES_NS),
        false => launch.end_ns().saturating_add(LAUNCH_NS),
    };
    let late_ns = arrives_ns.clamp(gap.start, gap.end);
    let thread = threads.index(launch.thread).unwrap_or_default();
    // The last call that blocked the thread, with its cause. The device's later idle time is
    // attributed to this call until the thread launches again.
    let mut blocked: Option<(IdleCause, u32, u32)> = None;
    let from = found.len();
    for mut one in threads.explain(thread, Interval::new(gap.start, late_ns)) {
        match one.cause {
            IdleCause::Sync | IdleCause::Allocation | IdleCause::PageableCopy => {
                blocked = Some((one.cause, one.call, one.thread));
            }
            IdleCause::Launch => {
                let before = || threads.wait_before(one.thread, one.interval.start);
                let by = blocked.or_else(|| Some((IdleCause::Sync, before()?, one.thread)));
                if let Some(by) = by {
                    (one.cause, one.call, one.thread) = by;
                }
            }
            // Attribute time without a known cause to the blocking call, up to the call's own
            // duration.
            IdleCause::Unknown => {
                if let Some((cause, call, thread)) = blocked {
                    // A wait that is known only from samples has no call, and so no duration.
                    let most_ns = rank.calls.get(call as usize).map_or(0, |call| call.duration_ns);
                    let Interval { start, end } = one.interval;
                    let until = start.saturating_add(most_ns).min(end);
                    let interval = Interval::new(start, until);
                    push(found, from, ExplainedIdle { interval, cause, thread, call });
                    one.interval = Interval::new(until, end);
                    blocked = blocked.filter(|_| until == end);
                }
            }
            // Anything else that the thread does would take as long without the wait, so the call
            // no longer counts.
            _ => blocked = None,
        }
        push(found, from, one);
    }
    if late_ns < gap.end {
        let interval = Interval::new(late_ns, gap.end);
        found.push(ExplainedIdle { interval, cause: IdleCause::Stream, thread, call: NO_CALL });
    }
}

/// Adds an interval. If the last interval of the same gap ends where this one begins, and has the
/// same cause, thread and call, extends that interval instead.
fn push(found: &mut Vec<ExplainedIdle>, from: usize, one: ExplainedIdle) {
    if one.interval.length() == 0 {
        return;
    }
    if let Some(last) = found[from..].last_mut()
        && last.interval.end == one.interval.start
        && (last.cause, last.thread, last.call) == (one.cause, one.thread, one.call)
    {
        last.interval.end = one.interval.end;
        return;
    }
    found.push(one);
}
