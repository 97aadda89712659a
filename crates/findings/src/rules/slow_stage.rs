//! Finds the slow stage of a pipeline, for the rule Stragglers.
//!
//! The ranks of a pipeline come to a collective one after the other by its schedule, and the last to
//! come is not what makes the others wait. So stages are judged by the replay of the steps, which
//! follows what they send and receive.

use tprof_facts::units::{duration, percent};
use tprof_metrics::gpu::replay::{
    DecidedSteps, JobGraph, Pipeline, RankSteps, WhatIf, decided_steps, pipelines, what_if,
};
use tprof_metrics::gpu::stragglers::Arrival;

use super::waiting_ranks;
use crate::finding::Finding;
use crate::outcome::RankFindings;
use crate::severity::LEAST_SHARE;

/// The verdict on the stages of pipelines.
pub(super) enum Stages {
    /// A stage is slow: the index of its rank, and the finding.
    Slow(usize, Box<Finding>),
    /// Stages need about the same time: by how much of a step the slowest makes it longer.
    Balanced(f64),
}

/// Judges the stages of pipelines. `None` if what holds up the ranks is none of that: if the rank
/// that comes last is no stage of a pipeline, if it is late compared with ranks that do the same as it
/// does, or if the steps can't be replayed.
pub(super) fn judge(ranks: &[RankFindings], arrivals: &[Arrival]) -> Option<Stages> {
    let steps: Vec<&RankSteps> = ranks.iter().map(|rank| &rank.rank_collectives.steps).collect();
    if steps.iter().all(|of| of.messages.is_empty()) {
        return None;
    }
    let graph = JobGraph::of(&steps);
    let pipelines = if graph.is_followed() { pipelines(&graph) } else { Vec::new() };
    let of =
        |rank: usize| pipelines.iter().find(|of| of.stages.iter().any(|stage| stage.rank == rank));
    let latest = (0..ranks.len()).filter(|rank| arrivals[*rank].met > 0);
    let latest = latest.max_by_key(|rank| arrivals[*rank].delay_ns);
    if pipelines.is_empty() || latest.is_some_and(|rank| of(rank).is_none()) {
        return None;
    }
    let decided = decided_steps(&graph)?;
    if decided.steps == 0 {
        return None;
    }
    let Some(slow) = decided.stretches.first() else { return Some(Stages::Balanced(0.0)) };
    if !slow.is_of_stage {
        return None;
    }
    let without = what_if(&graph, slow.rank)?;
    let share = 1.0 - without.without_ns / without.step_ns.max(1.0);
    match share >= LEAST_SHARE {
        true => {
            let finding = finding(ranks, of(slow.rank)?, slow, &without, share);
            Some(Stages::Slow(slow.rank, Box::new(finding)))
        }
        false => Some(Stages::Balanced(share.max(0.0))),
    }
}

fn finding(
    ranks: &[RankFindings],
    pipeline: &Pipeline,
    slow: &DecidedSteps,
    without: &WhatIf,
    share: f64,
) -> Finding {
    let rank = &ranks[slow.rank];
    let label = &rank.label;
    let rounded = |ns: f64| duration(ns.max(0.0).round() as u64);
    let own = |rank: usize| {
        let stage = pipeline.stages.iter().find(|stage| stage.rank == rank);
        stage.map_or(0, |stage| stage.own_ns / stage.steps.max(1))
    };
    let of_median = pipeline.of_median(own(slow.rank)).map_or(String::new(), |of_median| {
        format!(", {} of the median of {} stages", percent(of_median), pipeline.stages.len())
    });
    let place = slow.place.as_ref().map(|place| place.shown());
    let at = place.as_ref().map_or(String::new(), |place| format!(", most of all in {place}"));
    let seen = format!(
        "{label} needs {} a step without waits and transfers{of_median}{at}. With as much as the \
         others a step takes {} (± {}) instead of {}.",
        duration(own(slow.rank)),
        rounded(without.without_ns),
        rounded(without.error_ns),
        rounded(without.step_ns),
    );
    let bound_ns = (rank.window_ns as f64 * share) as u64;
    let what = format!("{label} is the slowest stage of its pipeline, and the others wait");
    let found = Finding::new(what).bound(bound_ns);
    let quickest = pipeline.stages.iter().min_by_key(|stage| own(stage.rank));
    let quickest = quickest.map_or(rank, |stage| &ranks[stage.rank]);
    // On the host, samples tell the line.
    if rank.rank_collectives.is_on_host && rank.rank_collectives.in_collectives.is_some() {
        return waiting_ranks::explained(found, seen, [rank, quickest], bound_ns);
    }
    found.seen(seen).advice(
        "See `tprof report stragglers`. Give this stage less: move layers to other stages, or \
             shorten what it does. What remains of the waits are the pipeline's bubbles: use more \
             microbatches in a step, or an interleaved schedule.",
    )
}
