//! Shares functions among the rules on operators with known sizes.

use tprof_facts::units::{duration, percent};
use tprof_metrics::program::flops::ModelledRun;
use tprof_rank::Work;
use tprof_rank::base::intervals::Cover;

use crate::scene::Scene;
use crate::verdict::Verdict;

/// The data that these rules need, in words.
pub(super) const NEEDS_SIZES: &str = "operators with sizes of their inputs: `tprof run --operators shapes`, or torch.profiler's record_shapes=True";

/// Returns the verdict if no operator has known sizes.
pub(super) fn no_sizes(scene: &Scene<'_>) -> Option<Verdict> {
    scene.no_compute().or_else(|| {
        let launched = |run: &ModelledRun| run.device_ns > 0;
        (!scene.modelled().runs.iter().any(launched)).then(|| {
            Verdict::unchecked("what operators on the device have to do is not known", NEEDS_SIZES)
        })
    })
}

/// Returns the work in the window that belongs to the runs for which `passes` is true.
pub(super) fn work_of<'s>(
    scene: &'s Scene<'_>,
    passes: impl Fn(usize, &ModelledRun) -> bool,
) -> Vec<&'s Work> {
    let modelled = scene.modelled();
    let rows = scene.rank.work.iter().zip(&modelled.run_of_work).enumerate();
    rows.filter(|(at, (_, run))| {
        scene.work_in_window_ns[*at] > 0
            && run.is_some_and(|run| passes(run as usize, &modelled.runs[run as usize]))
    })
    .map(|(_, (work, _))| work)
    .collect()
}

/// Returns the time within the window in which this work ran.
pub(super) fn cover(scene: &Scene<'_>, work: &[&Work]) -> Cover {
    Cover::of(work.iter().map(|work| work.interval())).intersection(&scene.window)
}

/// Formats the least time of some work, and the share of its actual time: `1.2 ms at the device's
/// peaks, 34 % of their time`.
pub(super) fn of_roof(scene: &Scene<'_>, least_ns: f64, time_ns: u64) -> String {
    format!(
        "{} at the device's peaks, {} of their time",
        duration(scene.per_step(least_ns as u64)),
        percent(least_ns / time_ns.max(1) as f64)
    )
}
