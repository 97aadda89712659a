//! Stragglers: ranks come late to collectives, so the other ranks wait.
//!
//! This is the only rule that judges all ranks together.

use tprof_facts::units::{count, duration, percent};
use tprof_metrics::gpu::replay::{JobGraph, RankSteps, what_if};
use tprof_metrics::gpu::stragglers::{Arrival, arrivals};

use super::slow_stage::{self, Stages};
use super::{collective_wait, waiting_ranks};
use crate::finding::Finding;
use crate::outcome::{Outcome, RankFindings};
use crate::rank_collectives::RankCollectives;
use crate::rule::RuleAbout;
use crate::severity::LEAST_SHARE;
use crate::verdict::Unchecked;

/// The texts that document this rule.
pub(crate) const ABOUT: RuleAbout = RuleAbout {
    name: "Stragglers",
    found_if: "ranks come late to collectives ([stragglers](#stragglers)), or a stage of a pipeline is \
         slower than the others (`what_if`); where no operation was recorded, by the ranks' \
         `collective` time",
    gain: "one rank's `delay_ns` if that is half of all or more, else the sum over ranks; of a stage, \
         what `what_if` predicts",
    needs: "collectives, or sends and receives, on two ranks or more",
    remedy: "balance the late rank's share of work (of a stage, its layers); check for a slower device \
         or a busy host",
};
const NAME: &str = ABOUT.name;
/// If one rank causes at least this share of all delay, the finding names that rank. Otherwise, the
/// ranks delay each other in turn.
const BLAME: f64 = 0.5;

/// Compares the ranks, and adds an outcome of this rule to each rank.
pub(crate) fn judge(ranks: &mut [RankFindings]) {
    let found =
        arrivals(&ranks.iter().map(|rank| &rank.rank_collectives.compared).collect::<Vec<_>>());
    if let Some(stages) = slow_stage::judge(ranks, &found) {
        return add_stages(ranks, stages);
    }
    if found.iter().any(|arrival| arrival.met > 0) {
        return compare(ranks, &found);
    }
    let is_recorded = |rank: &RankFindings| {
        let RankCollectives { operations, without_kernel, .. } = rank.rank_collectives;
        operations > 0 || without_kernel > 0
    };
    if !ranks.iter().any(is_recorded)
        && let Some(outcomes) = waiting_ranks::compare(NAME, ranks)
    {
        let found = outcomes.iter().flat_map(|outcome| &outcome.found);
        let late_ns = found.map(|(finding, _)| finding.bound_ns).max().unwrap_or(0);
        for (rank, outcome) in ranks.iter_mut().zip(outcomes) {
            collective_wait::without(rank, late_ns);
            rank.outcomes.push(outcome);
        }
        return;
    }
    let outcome = not_compared(ranks);
    ranks.iter_mut().for_each(|rank| rank.outcomes.push(outcome.clone()));
}

/// Returns the outcome, with the reason, if no ranks could be compared.
fn not_compared(ranks: &[RankFindings]) -> Outcome {
    let any =
        |is: fn(&RankCollectives) -> bool| ranks.iter().any(|rank| is(&rank.rank_collectives));
    let are_many = ranks.len() > 1 || any(|one| one.ranks.is_some_and(|ranks| ranks > 1));
    let unchecked = |why: &str, needs: &str| {
        let unchecked = Unchecked { why: why.to_owned(), needs: needs.to_owned(), denies: true };
        Outcome { unchecked: Some(unchecked), ..Outcome::of(NAME) }
    };
    let clear =
        |why: &str| Outcome { no_problem: Some(why.to_owned()), denies: true, ..Outcome::of(NAME) };
    if any(|one| one.compared.seen > 0) {
        unchecked(
            "no collective was recorded on more than one rank",
            "the files of the other ranks, recorded in the same steps",
        )
    } else if any(|one| one.operations > 0) {
        clear("no collective in which all ranks wait for each other was recorded")
    } else if any(|one| one.without_kernel > 0) {
        unchecked(
            "collectives were recorded without their kernels, which hold the waiting",
            "NCCL or RCCL collectives with their kernels",
        )
    } else if are_many {
        unchecked(
            "no collective was recorded, and no rank was sampled in one",
            "NCCL or RCCL collectives with their kernels; for gloo and MPI CPU samples of all \
             ranks, with their native code",
        )
    } else {
        clear("there is one rank, and no collective was recorded")
    }
}

/// Adds an outcome to each rank, based on the stages of pipelines.
fn add_stages(ranks: &mut [RankFindings], stages: Stages) {
    let nothing = Outcome::of(NAME);
    match stages {
        Stages::Slow(slow, finding) => {
            let bound_ns = finding.bound_ns;
            for (at, rank) in ranks.iter_mut().enumerate() {
                let found = (at == slow).then(|| (*finding.clone(), Vec::new()));
                rank.outcomes
                    .push(Outcome { found: found.into_iter().collect(), ..nothing.clone() });
                if rank.rank_collectives.is_on_host {
                    collective_wait::without(rank, bound_ns);
                }
            }
        }
        Stages::Balanced(share) => {
            let why = format!(
                "stages of the pipeline need about the same time: at most {} is lost",
                percent(share)
            );
            let outcome = Outcome { no_problem: Some(why), ..nothing };
            ranks.iter_mut().for_each(|rank| rank.outcomes.push(outcome.clone()));
        }
    }
}

/// Adds an outcome to each rank, based on the arrivals of all ranks.
fn compare(ranks: &mut [RankFindings], found: &[Arrival]) {
    let nothing = Outcome::of(NAME);
    let stride = stride(ranks);
    let delay = |at: usize| found[at].delay_ns.saturating_mul(stride);
    let Some(worst) = (0..ranks.len()).max_by_key(|&at| (delay(at), std::cmp::Reverse(at))) else {
        return;
    };
    let total: u64 = (0..ranks.len()).map(delay).sum();
    let blamed = delay(worst) as f64 >= BLAME * total as f64;
    let bound = if blamed { delay(worst) } else { total }.min(ranks[worst].window_ns);
    let share = bound as f64 / ranks[worst].window_ns.max(1) as f64;
    let waits = (0..ranks.len()).max_by_key(|&at| found[at].waited_ns).unwrap_or(worst);
    let finding = finding(ranks, found, [worst, waits], blamed, bound);
    for (at, rank) in ranks.iter_mut().enumerate() {
        let outcome = match share >= LEAST_SHARE {
            true if at == worst => {
                Outcome { found: vec![(finding.clone(), Vec::new())], ..nothing.clone() }
            }
            true => nothing.clone(),
            false => Outcome {
                no_problem: Some(format!(
                    "ranks come together: at most {} is lost",
                    percent(share)
                )),
                ..nothing.clone()
            },
        };
        rank.outcomes.push(outcome);
        if rank.rank_collectives.is_on_host && share >= LEAST_SHARE {
            collective_wait::without(rank, bound);
        }
    }
}

/// One in so many collectives is compared on all ranks, by which times are scaled up: the largest
/// stride of the ranks, since ranks with smaller ones leave out what the others lack.
fn stride(ranks: &[RankFindings]) -> u64 {
    ranks.iter().map(|rank| rank.rank_collectives.compared.stride).max().unwrap_or(1).max(1)
}

/// Says what a step would take without the rank's lateness, if the steps can be replayed.
fn without(ranks: &[RankFindings], rank: usize) -> Option<String> {
    let steps: Vec<&RankSteps> = ranks.iter().map(|rank| &rank.rank_collectives.steps).collect();
    let graph = JobGraph::of(&steps);
    let found = graph.is_followed().then(|| what_if(&graph, rank)).flatten()?;
    let rounded = |ns: f64| duration(ns.max(0.0).round() as u64);
    Some(format!(
        " Without its lateness a step takes {} (± {}) instead of {}.",
        rounded(found.without_ns),
        rounded(found.error_ns),
        rounded(found.step_ns)
    ))
}

/// Returns the finding on the rank that causes the most delay (`worst`). It also mentions the rank
/// that waits longest (`waits`).
fn finding(
    ranks: &[RankFindings],
    found: &[Arrival],
    [worst, waits]: [usize; 2],
    blamed: bool,
    bound: u64,
) -> Finding {
    let (late, rank) = (&found[worst], &ranks[worst]);
    let per_step = |ns: u64| match rank.steps {
        0 => format!("{} in all", duration(ns)),
        steps => format!("{} a step", duration(ns / steps as u64)),
    };
    let what = match blamed {
        true => format!("{} comes late, and the others wait", rank.label),
        false => "ranks delay each other in turn".to_owned(),
    };
    let stride = stride(ranks);
    let estimate = match stride > 1 {
        true => format!(" Estimated from one in {stride} collectives."),
        false => String::new(),
    };
    let compared = match ranks.iter().filter_map(|rank| rank.rank_collectives.ranks).max() {
        Some(size) if size as usize > ranks.len() => {
            format!(" Only {} of {} ranks were compared.", ranks.len(), count(size.into()))
        }
        _ => String::new(),
    };
    let without = match blamed {
        true => without(ranks, worst).unwrap_or_default(),
        false => String::new(),
    };
    let seen = format!(
        "{} came last to {} of {} collectives, {} after the last but one; {} waited longest, \
         {}.{without}{compared}{estimate}",
        rank.label,
        count(late.last),
        count(late.met),
        per_step(late.delay_ns.saturating_mul(stride)),
        ranks[waits].label,
        per_step(found[waits].waited_ns.saturating_mul(stride)),
    );
    let on_host = blamed && rank.rank_collectives.is_on_host;
    let found = Finding::new(what).bound(bound);
    if on_host && rank.rank_collectives.in_collectives.is_some() {
        return waiting_ranks::explained(found, seen, [rank, &ranks[waits]], bound);
    }
    found.seen(seen).advice(
        "See `tprof report stragglers`. Compare the rank's work before the collective with \
             another rank's (`tprof diff`). Balance its share of data, sequence lengths, embedding \
             tables or pipeline stages; check for a slower device or a busy host.",
    )
}
