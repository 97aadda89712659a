//! Calls that block their thread, and what the device lost by it.

use rustc_hash::FxHashMap;

use super::scene::{Gap, Scene};
use crate::base::intervals::Cover;
use crate::rank::RankTrace;

/// Calls that block, and what the device lost by it.
pub(super) struct Blocking {
    /// The calls, as indices.
    pub calls: Vec<usize>,
    /// Time in which one of them lasted.
    pub wait: Cover,
    /// Gaps that lasted when one of them returned, and that its thread ended later.
    pub idle: Cover,
}

impl Blocking {
    /// Examines these calls.
    pub fn of(scene: &Scene<'_>, calls: Vec<usize>) -> Blocking {
        let wait = scene.cover_of_calls(&calls);
        let idle = after_calls(&scene.gaps, scene.rank, &calls);
        Blocking { calls, wait, idle }
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
        let Some(launch) = gap.launch().map(|at| &rank.calls[at]) else { return false };
        let Some(ends) = ends.get(&launch.thread) else { return false };
        let before = ends.partition_point(|&end| end <= launch.start_ns.min(gap.interval.end));
        before > 0 && ends[before - 1] >= gap.interval.start
    };
    Cover::of(gaps.iter().filter(follows).map(|gap| gap.late()))
}
