//! Gaps on the device, and who let it wait.

use rustc_hash::FxHashMap;

use crate::intervals::{Cover, Interval};
use crate::rank::RankTrace;

/// Longest time that a launch takes to reach an idle device. It is 2 to 20 us; when
/// work begins later than this, something on the device held it.
const LAUNCH_NS: u64 = 100_000;

/// A time in which no device of the rank did anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// When.
    pub interval: Interval,
    /// The call that launched the work which ended it, as an index; none if the
    /// gap ends with the window, or the launch was not seen.
    pub launch: Option<usize>,
    /// How much of it passed, from its start, before that call was over and the work
    /// had time to reach the device: until then the device had nothing to do. The
    /// rest the work spent waiting on the device. All of it, if the launch was not
    /// seen.
    pub late: Interval,
}

impl Gap {
    /// Gaps in order.
    pub fn all(rank: &RankTrace<'_>, idle: &Cover) -> Vec<Gap> {
        idle.parts().iter().map(|&gap| Gap::of(rank, gap)).collect()
    }

    fn of(rank: &RankTrace<'_>, gap: Interval) -> Gap {
        let first = rank.work.partition_point(|work| work.start_ns < gap.end);
        let mut here = first..rank.work.len();
        // Of several that start together, the one that was launched first ended it.
        let launch = here
            .by_ref()
            .take_while(|&at| rank.work[at].start_ns == gap.end)
            .filter_map(|at| rank.launches.call_of(at))
            .min();
        let late_end = match launch.map(|call| rank.calls[call].end_ns()) {
            None => gap.end,
            Some(over) if over <= gap.start => gap.start,
            Some(over) => over.saturating_add(LAUNCH_NS).min(gap.end),
        };
        let late = Interval::new(gap.start, late_end);
        Gap { interval: gap, launch, late }
    }
}

/// Of these gaps, those in which a call that blocks its thread came to its end
/// before that thread launched what ended the gap: the thread could not launch
/// it earlier.
pub(super) fn after_calls(gaps: &[Gap], rank: &RankTrace<'_>, calls: &[usize]) -> Cover {
    let mut ends: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
    for &at in calls {
        let call = &rank.calls[at];
        ends.entry(call.thread).or_default().push(call.end_ns());
    }
    ends.values_mut().for_each(|ends| ends.sort_unstable());
    let follows = |gap: &&Gap| {
        let Some(launch) = gap.launch.map(|at| &rank.calls[at]) else { return false };
        let Some(ends) = ends.get(&launch.thread) else { return false };
        let before = ends.partition_point(|&end| end <= launch.start_ns.min(gap.interval.end));
        before > 0 && ends[before - 1] >= gap.interval.start
    };
    Cover::of(gaps.iter().filter(follows).map(|gap| gap.late))
}
