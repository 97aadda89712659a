//! Measures the bubbles of pipelines: how long each stage waits for the others.
//!
//! Ranks that send and receive are a pipeline if they are a chain, and if in each step the first of
//! the chain begins with a send and each other one with a receive from the one before it. Bubbles
//! are the time in which a stage waits, and meanwhile does not compute: for a sender, for a
//! receiver, or in a collective for another stage.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::stats::median;

use super::JobGraph;
use super::graph::GraphRow;
use super::measured::{MeasuredStep, measured_steps};
use super::messages::Matched;

/// Steps that begin as those of a pipeline must be more than this share of all; and so must those
/// with the same number of microbatches, so that there is a number.
const LEAST_ALIKE: f64 = 0.9;

/// The stages of a pipeline, and the time that they have to wait for each other.
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
    /// Number of steps over which the stage's times are summed.
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

/// A message from the side of a rank, in order of ranks and their rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OfRow {
    rank: u32,
    row: u32,
    other: u32,
    is_send: bool,
}

/// Returns the messages of some of a rank's rows.
fn of_rows(messages: &[OfRow], rank: u32, rows: Range<u32>) -> &[OfRow] {
    let [from, to] = [rows.start, rows.end]
        .map(|row| messages.partition_point(|of| (of.rank, of.row) < (rank, row)));
    &messages[from..to]
}

/// Returns the pipelines of a job.
pub fn pipelines(graph: &JobGraph<'_>) -> Vec<Pipeline> {
    let is_joining = |of: &&Matched| graph.stages.are_joined(of.send.0, of.receive.0);
    let joining = graph.messages.iter().filter(is_joining);
    let sides = |of: &Matched| {
        let side = |(rank, row), (other, _), is_send| OfRow { rank, row, other, is_send };
        [side(of.send, of.receive, true), side(of.receive, of.send, false)]
    };
    let mut messages: Vec<OfRow> = joining.flat_map(sides).collect();
    messages.sort_unstable();
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
fn chain(ranks: &[u32], messages: &[OfRow]) -> Option<Vec<u32>> {
    let others = |rank: &u32| {
        let all = of_rows(messages, *rank, 0..u32::MAX);
        (*rank, all.iter().map(|of| of.other).collect::<BTreeSet<u32>>())
    };
    let neighbours: BTreeMap<u32, BTreeSet<u32>> = ranks.iter().map(others).collect();
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
fn begins_as_pipeline(chain: &[u32], steps: &[Vec<MeasuredStep>], messages: &[OfRow]) -> bool {
    let (mut all, mut alike) = (0_u64, 0_u64);
    for (stage, (rank, steps)) in chain.iter().zip(steps).enumerate() {
        for step in steps {
            let of_step = of_rows(messages, *rank, step.rows.start as u32..step.rows.end as u32);
            let Some(first) = of_step.chunk_by(|a, b| a.row == b.row).next() else { continue };
            all += 1;
            alike += u64::from(match stage {
                0 => first.iter().all(|of| of.is_send),
                _ => first.iter().any(|of| of.other == chain[stage - 1] && !of.is_send),
            });
        }
    }
    all > 0 && alike as f64 >= LEAST_ALIKE * all as f64
}

/// Returns the number of operations by which each stage sends to the next in a step.
fn microbatches(chain: &[u32], steps: &[Vec<MeasuredStep>], messages: &[OfRow]) -> Option<u64> {
    let mut counts = Vec::new();
    for (pair, steps) in chain.windows(2).zip(steps) {
        let sends = |step: &MeasuredStep| {
            let rows = step.rows.start as u32..step.rows.end as u32;
            let of_step = of_rows(messages, pair[0], rows).chunk_by(|a, b| a.row == b.row);
            let sends = |row: &&[OfRow]| row.iter().any(|of| of.other == pair[1] && of.is_send);
            of_step.filter(sends).count() as u64
        };
        counts.extend(steps.iter().map(sends));
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
