//! Finds the gaps in a device's work, each with the call whose launch ended it.

use tprof_rank::RankTrace;
use tprof_rank::base::intervals::{Cover, Interval};

/// The longest time that a launch takes to reach an idle device. Typically it takes 2 to 20 us. If
/// work begins later than this, something on the device held it up.
pub(super) const LAUNCH_NS: u64 = 100_000;

/// An interval in which no device of the rank did anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The time of the gap.
    pub interval: Interval,
    /// Index of the launching call (see [`Self::launch`]), or [`NONE`].
    launch: u32,
    /// The end of the interval that [`Self::late`] returns.
    late_end: u64,
}

/// The value of the field `launch` of a [`Gap`] if no launch was recorded.
const NONE: u32 = u32::MAX;

impl Gap {
    /// Returns the gaps of devices, in order. `work` is the work of these devices
    /// ([`RankTrace::work_by_device`]).
    pub fn all(rank: &RankTrace<'_>, idle: &Cover, work: &[u32]) -> Vec<Gap> {
        let mut rest = work;
        let gap = |&interval: &Interval| {
            let is_behind = |at: &u32| rank.work[*at as usize].start_ns >= interval.end;
            rest = &rest[rest.iter().position(is_behind).unwrap_or(rest.len())..];
            Gap::of(rank, interval, rest)
        };
        idle.parts().iter().map(gap).collect()
    }

    /// Makes a gap. `work` starts with the first work that begins at or after the gap's end.
    fn of(rank: &RankTrace<'_>, gap: Interval, work: &[u32]) -> Gap {
        // If several pieces of work begin together, the one that was launched first ended the gap.
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
    /// the window, or if the launch wasn't recorded.
    pub fn launch(&self) -> Option<usize> {
        (self.launch != NONE).then_some(self.launch as usize)
    }

    /// Returns the part of the gap in which the device had nothing to do: from the gap's beginning
    /// until the launching call had returned and the work had time to reach the device. In the rest
    /// of the gap, the work waited on the device. Without a recorded launch, this is the whole gap.
    pub fn late(&self) -> Interval {
        Interval::new(self.interval.start, self.late_end)
    }
}
