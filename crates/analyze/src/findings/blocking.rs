//! Calls that block their thread, and the device time that they cost.

use rustc_hash::FxHashMap;

use super::scene::{Gap, Scene};
use crate::base::intervals::Cover;
use crate::rank::RankTrace;

/// Calls that block, and the device time that they cost.
pub(super) struct Blocking {
    /// The calls, as indices.
    pub calls: Vec<usize>,
    /// Time during which any of the calls lasted.
    pub wait: Cover,
    /// Gaps that had begun when one of the calls returned, and that the call's thread ended later.
    pub idle: Cover,
}

impl Blocking {
    /// Examines these calls in a scene.
    pub fn of(scene: &Scene<'_>, calls: Vec<usize>) -> Blocking {
        let wait = scene.cover_of_calls(&calls);
        let idle = after_calls(&scene.gaps, scene.rank, &calls);
        Blocking { calls, wait, idle }
    }
}

/// The gaps in which a call that blocks its thread returned before that thread launched the work
/// that ended the gap: the thread could not launch it earlier.
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
