//! Gaps on the device, each with the call that let it wait.

use crate::base::intervals::{Cover, Interval};
use crate::rank::RankTrace;

/// Longest time that a launch takes to reach an idle device. It is 2 to 20 us; when
/// work begins later than this, something on the device held it.
pub(super) const LAUNCH_NS: u64 = 100_000;

/// A time in which no device of the rank did anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The time of the gap.
    pub interval: Interval,
    /// Index of the launching call ([`Self::launch`]), or [`NONE`].
    launch: u32,
    /// The end of the interval [`Self::late`].
    late_end: u64,
}

/// There is no recorded launch.
const NONE: u32 = u32::MAX;

impl Gap {
    /// Gaps of devices, in order; `work` is theirs ([`RankTrace::work_by_device`]).
    pub fn all(rank: &RankTrace<'_>, idle: &Cover, work: &[u32]) -> Vec<Gap> {
        let mut rest = work;
        let gap = |&interval: &Interval| {
            let is_behind = |at: &u32| rank.work[*at as usize].start_ns >= interval.end;
            rest = &rest[rest.iter().position(is_behind).unwrap_or(rest.len())..];
            Gap::of(rank, interval, rest)
        };
        idle.parts().iter().map(gap).collect()
    }

    /// A gap, and the work that starts no earlier than it ends.
    fn of(rank: &RankTrace<'_>, gap: Interval, work: &[u32]) -> Gap {
        // Among several that start together, the one that was launched first ended the gap.
        let launch = (work.iter().map(|at| *at as usize))
            .take_while(|at| rank.work[*at].start_ns == gap.end)
            .filter_map(|at| rank.launches.call_of(at))
            .min();
        let late_end = match launch.map(|call| rank.calls[call].end_ns()) {
            None => gap.end,
            Some(over) if over <= gap.start => gap.start,
            Some(over) => over.saturating_add(LAUNCH_NS).min(gap.end),
        };
        Gap { interval: gap, launch: launch.map_or(NONE, |call| call as u32), late_end }
    }

    /// Index of the call that launched the work which ended the gap; `None` if the gap ends with
    /// the window, or the launch was not recorded.
    pub fn launch(&self) -> Option<usize> {
        (self.launch != NONE).then_some(self.launch as usize)
    }

    /// The beginning of the gap, until the launching call was over and the work had time to reach
    /// the device: until then the device had nothing to do. In the rest of the gap, the work waited
    /// on the device. It is the whole gap if no launch was recorded.
    pub fn late(&self) -> Interval {
        Interval::new(self.interval.start, self.late_end)
    }
}
