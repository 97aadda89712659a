//! Finds the device time that calls cost by blocking their thread.

use rustc_hash::FxHashMap;
use tprof_rank::RankTrace;
use tprof_rank::base::intervals::Cover;

use super::scene::{Gap, Scene};

/// Calls that block their thread, and the device time that they cost.
pub(super) struct Blocking {
    /// Indices of the calls in `RankTrace::calls`.
    pub calls: Vec<usize>,
    /// The time during which at least one of the calls was in progress.
    pub wait: Cover,
    /// The idle time that the calls cost, as [`after_calls`] finds it.
    pub idle: Cover,
}

impl Blocking {
    /// Computes the device time that these calls cost.
    pub fn of(scene: &Scene<'_>, calls: Vec<usize>) -> Blocking {
        let wait = scene.cover_of_calls(&calls);
        let idle = after_calls(&scene.gaps, scene.rank, &calls);
        Blocking { calls, wait, idle }
    }
}

/// Returns the idle time that blocking calls cost. A gap counts if a blocking call returned in it
/// and the call's thread then launched the work that ended the gap: while the call blocked, the
/// thread could not launch that work. The part of the gap that counts is [`Gap::late`].
pub(super) fn after_calls(gaps: &[Gap], rank: &RankTrace<'_>, calls: &[usize]) -> Cover {
    let mut ends: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
    for &at in calls {
        let call = &rank.calls[at];
        ends.entry(call.thread).or_default().push(call.end_ns());
    }
    ends.values_mut().for_each(|ends| ends.sort_unstable());
    let follows = |gap: &&Gap| {
        let Some(launch) = gap.launch().map(|at| &rank.calls[at]) else { return false };
        let Some(ends) = ends.get(&launch.thread) else { return false };
        let before = ends.partition_point(|&end| end <= launch.start_ns.min(gap.interval.end));
        before > 0 && ends[before - 1] >= gap.interval.start
    };
    Cover::of(gaps.iter().filter(follows).map(|gap| gap.late()))
}
