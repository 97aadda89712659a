//! `findings`: what holds the job up, how much fixing it may gain, what to do.
//!
//! One file per `rule::Rule`. A rule looks at a `scene::Scene`, one rank's
//! steps, and says what it found, that it found nothing, or which data would
//! tell. Each finding has an upper bound, from which its severity follows; bounds
//! of different findings overlap and must not be added. `docs/metrics.md` states
//! every trigger and the reasoning behind every bound.

mod absent;
mod allocation_churn;
mod beginning;
mod calls;
mod compute_bound;
mod copies;
mod counters;
mod data_load;
mod device_allocations;
mod exposed_communication;
mod fragmented_memory;
mod gaps;
mod gpu_gaps;
mod join;
mod kernel_kinds;
mod launch_bound;
pub(crate) mod lines;
mod low_utilization;
mod main_threads;
mod memory_bound;
mod pageable_copies;
mod recompilation;
mod rule;
mod sampled_loading;
mod scene;
mod small_batches;
mod stragglers;
mod sync_bound;
mod synchronous_copies;
mod synchronous_memsets;
mod tables;
#[cfg(test)]
mod tests;
mod unoptimized_op;
mod words;

use crate::document::{Analysis, Body, DocumentKind, Options, RankAt, boxed};
use crate::rank::{Needs, RankTrace};
use absent::Thing;
use copies::{Copy, Words};
use rule::{Rule, Verdict};
use scene::Scene;

pub use join::RankFindings;
pub use lines::Line;

/// The kind.
pub const KIND: DocumentKind = DocumentKind {
    name: "findings",
    about: "what holds the job up, what fixing it may gain, what to do",
    analysis: || boxed(Findings),
};

/// Rules over ranks.
pub struct Findings;

/// All rules that judge a rank.
const RULES: [&dyn Rule; 17] = [
    &low_utilization::LowUtilization,
    &gpu_gaps::GpuGaps,
    &launch_bound::LaunchBound,
    &data_load::DataLoadBound,
    &sync_bound::SyncBound,
    &pageable_copies::PageableCopies,
    &synchronous_copies::SynchronousCopies,
    &synchronous_memsets::SynchronousMemsets,
    &exposed_communication::ExposedCommunication,
    &small_batches::SmallBatches,
    &unoptimized_op::UnoptimizedOp,
    &memory_bound::MemoryBound,
    &compute_bound::ComputeBound,
    &fragmented_memory::FragmentedMemory,
    &device_allocations::DeviceAllocations,
    &allocation_churn::AllocationChurn,
    &recompilation::Recompilation,
];

impl Analysis for Findings {
    const KIND: &'static str = KIND.name;
    const HTA: bool = false;
    type Part = Option<RankFindings>;

    fn needs(&self, _: &Options) -> Needs {
        Needs::ALL
    }

    fn rank(&self, rank: &RankTrace<'_>, at: &RankAt, _: &Options) -> Option<RankFindings> {
        // A launcher has no steps to speed up.
        at.rank?;
        let judged = || RankFindings::of(&Scene::of(rank, at.clock), at, &RULES);
        Some(rank.findings.get_or_init(judged).clone())
    }

    fn join(&self, parts: Vec<(RankAt, Self::Part)>, _: &Options) -> Body {
        let mut ranks: Vec<RankFindings> = parts.into_iter().filter_map(|(_, part)| part).collect();
        stragglers::judge(&mut ranks);
        tables::body(&ranks)
    }
}

/// Copies or memsets whose calls hold their thread.
fn judge_synchronous(
    scene: &Scene<'_>,
    thing: &Thing,
    words: &Words,
    is_one: impl Fn(&Copy) -> bool,
) -> Verdict {
    if let Some(verdict) = scene.no_device() {
        return verdict;
    }
    let copies = scene.copies(&is_one);
    if !copies.is_empty() {
        return Verdict::Found(vec![copies::finding(scene, &copies, words)]);
    }
    let all = scene.copies(|_| true);
    match !all.is_empty() && all.iter().all(|copy| copy.is_asynchronous(scene.rank).is_none()) {
        true => Verdict::undecided(
            "which call started which copy was not recorded",
            "calls of the CUDA or HIP runtime with the correlations of their copies",
        ),
        false => scene
            .no_calls()
            .filter(|_| !all.is_empty())
            .unwrap_or_else(|| Verdict::none(scene.none(thing, scene.has_copies(is_one)))),
    }
}
