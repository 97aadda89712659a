//! Measures the bubbles of pipelines: how long each stage waits for the others.
//!
//! Ranks that send and receive are a pipeline if they are a chain, and if in each step the first of
//! the chain begins with a send and each other one with a receive from the one before it. Bubbles
//! are the time in which a stage waits, and meanwhile does not compute: for a sender, for a
//! receiver, or in a collective for another stage.

use std::collections::{BTreeMap, BTreeSet};

use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::stats::median;

use super::JobGraph;
use super::graph::GraphRow;
use super::measured::{MeasuredStep, measured_steps};

/// Steps that begin as those of a pipeline must be more than this share of all; and so must those
/// with the same number of microbatches, so that there is a number.
const LEAST_ALIKE: f64 = 0.9;

/// A pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// Its stages, the first first.
    pub stages: Vec<Stage>,
    /// Number of microbatches of a step, by the sends of each stage to the next; `None` if these
    /// differ. Stages that hold several parts of the model (interleaved) would count each part.
    pub microbatches: Option<u64>,
}

/// A stage of a pipeline: a rank. Times are sums over its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// Index of the rank.
    pub rank: usize,
    /// Number of steps.
    pub steps: u64,
    /// Time of the steps, ns.
    pub steps_ns: u64,
    /// Time in which the stage waits and does not compute, ns.
    pub bubble_ns: u64,
    /// Time outside of operations between ranks, and time in which a device computes during them,
    /// ns.
    pub own_ns: u64,
}

impl Pipeline {
    /// Returns the share of a step that the bubbles of each stage take if all stages need the same
    /// time, in a schedule that fills and drains the pipeline in each step: of `m` microbatches and
    /// `s` stages (s − 1) / (m + s − 1), for GPipe as for 1F1B.
    pub fn ideal(&self) -> Option<f64> {
        let others = self.stages.len() as f64 - 1.0;
        Some(others / (self.microbatches? as f64 + others))
    }

    /// Returns a time of a step / the median of the own times that the stages need in a step; `None`
    /// if they need none.
    pub fn of_median(&self, ns: u64) -> Option<f64> {
        let own_ns = self.stages.iter().map(|stage| stage.own_ns / stage.steps.max(1));
        let median_ns = median(own_ns.collect());
        (median_ns > 0).then(|| ns as f64 / median_ns as f64)
    }
}

/// A rank's messages of a row: the other rank of each, and whether the rank sends it.
type Messages = BTreeMap<(u32, u32), Vec<(u32, bool)>>;

/// Returns the pipelines of a job.
pub fn pipelines(graph: &JobGraph<'_>) -> Vec<Pipeline> {
    let mut messages = Messages::new();
    for of in &graph.messages {
        messages.entry(of.send).or_default().push((of.receive.0, true));
        messages.entry(of.receive).or_default().push((of.send.0, false));
    }
    let of_set = |ranks: Vec<u32>| {
        let chain = chain(&ranks, &messages)?;
        let steps: Vec<Vec<MeasuredStep>> =
            chain.iter().map(|rank| measured_steps(&graph.rows[*rank as usize])).collect();
        let backward = chain.iter().rev().copied().collect::<Vec<u32>>();
        let backward_steps: Vec<_> = steps.iter().rev().cloned().collect();
        [(chain, steps), (backward, backward_steps)]
            .into_iter()
            .find(|(chain, steps)| begins_as_pipeline(chain, steps, &messages))
            .map(|(chain, steps)| Pipeline {
                microbatches: microbatches(&chain, &steps, &messages),
                stages: chain.iter().zip(&steps).map(|of| stage(graph, *of.0, of.1)).collect(),
            })
    };
    graph.stages.sets().into_iter().filter_map(of_set).collect()
}

/// Returns the ranks in the order of the chain that their messages make, from one of its ends;
/// `None` if they make none.
fn chain(ranks: &[u32], messages: &Messages) -> Option<Vec<u32>> {
    let mut neighbours: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for ((rank, _), of_row) in messages.range((*ranks.first()?, 0)..=(*ranks.last()?, u32::MAX)) {
        neighbours.entry(*rank).or_default().extend(of_row.iter().map(|(other, _)| *other));
    }
    let first = ranks.iter().find(|rank| neighbours[rank].len() == 1)?;
    let mut chain = vec![*first];
    let mut before = None;
    while chain.len() < ranks.len() {
        let last = *chain.last()?;
        let mut others = neighbours[&last].iter().filter(|other| Some(**other) != before);
        let next = others.next()?;
        if others.next().is_some() {
            return None;
        }
        before = Some(last);
        chain.push(*next);
    }
    let ends = neighbours[chain.last()?].len() == 1;
    ends.then_some(chain)
}

/// Whether in nearly all steps the first rank begins with a send, and each other one with a receive
/// from the one before it.
fn begins_as_pipeline(chain: &[u32], steps: &[Vec<MeasuredStep>], messages: &Messages) -> bool {
    let (mut all, mut alike) = (0_u64, 0_u64);
    for (stage, (rank, steps)) in chain.iter().zip(steps).enumerate() {
        for step in steps {
            let mut rows = step.rows.clone().map(|row| messages.get(&(*rank, row as u32)));
            let Some(first) = rows.find_map(|of| of) else { continue };
            all += 1;
            alike += u64::from(match stage {
                0 => first.iter().all(|(_, is_send)| *is_send),
                _ => first.iter().any(|of| *of == (chain[stage - 1], false)),
            });
        }
    }
    all > 0 && alike as f64 >= LEAST_ALIKE * all as f64
}

/// Returns the number of operations by which each stage sends to the next in a step.
fn microbatches(chain: &[u32], steps: &[Vec<MeasuredStep>], messages: &Messages) -> Option<u64> {
    let mut counts = Vec::new();
    for (pair, steps) in chain.windows(2).zip(steps) {
        let sends = |row: &usize| {
            let of_row = messages.get(&(pair[0], *row as u32));
            of_row.is_some_and(|of_row| of_row.contains(&(pair[1], true)))
        };
        counts.extend(steps.iter().map(|step| step.rows.clone().filter(sends).count() as u64));
    }
    let usual = median(counts.clone());
    let alike = counts.iter().filter(|count| **count == usual).count();
    (usual > 0 && alike as f64 >= LEAST_ALIKE * counts.len() as f64).then_some(usual)
}

fn stage(graph: &JobGraph<'_>, rank: u32, steps: &[MeasuredStep]) -> Stage {
    let mut stage = Stage { rank: rank as usize, ..Stage::default() };
    for step in steps {
        let rows = &graph.rows[rank as usize][step.rows.clone()];
        let waits = rows.iter().filter(|row| is_of_pipeline(graph, rank, row));
        // What the device computes during an operation, it is assumed to compute first.
        let bubble = waits.map(|row| {
            let waited_ns = graph.waited_ns(row);
            let start_ns = row.of.start_ns;
            Interval::new(start_ns + row.of.hidden_ns.min(waited_ns), start_ns + waited_ns)
        });
        stage.bubble_ns += Cover::of(bubble).length();
        stage.own_ns += rows.iter().map(|row| row.of.before_ns + row.of.hidden_ns).sum::<u64>();
        stage.steps_ns += step.length_ns.max(0) as u64;
        stage.steps += 1;
    }
    stage
}

/// Whether a rank waits at a row for other stages, and not for ranks that do the same as it does.
fn is_of_pipeline(graph: &JobGraph<'_>, rank: u32, row: &GraphRow) -> bool {
    let mut others = graph.members_of(row.meeting).iter().filter(|(other, _)| *other != rank);
    others.any(|(other, _)| graph.stages.are_joined(rank, *other))
}
