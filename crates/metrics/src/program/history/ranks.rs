//! Compares the ranks of a job: which one the others wait for, and which changes are one.

use tprof_document::RankContext;
use tprof_facts::history::lateness;

use super::cells::Cells;
use super::changes::{ChangeKind, changes_of_blocks};
use super::figures::Figure;
use super::summary::{FigureChange, RankHistory};

/// Least share of the steps by which the others wait longer, for a rank to be late.
const LEAST_LATE: f64 = 0.05;
/// Number of cells in a block, when changes between ranks are looked for.
const BLOCK: usize = 2;
/// Changes of several ranks within this share of the job, or this time, are one.
const TOGETHER: f64 = 0.01;
const TOGETHER_NS: u64 = 30_000_000_000;

/// The rank that the others wait for in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LateRank {
    /// Index of the rank's part.
    pub part: usize,
    /// By which share of the steps the others wait longer, as their median.
    pub share: f64,
}

/// For each rank that is known, its index and by how much longer the others wait, as a share of the
/// steps.
fn late_ranks(cells: &[Cells], place: u64) -> impl Iterator<Item = (usize, f64)> + use<> {
    let waits: Vec<Option<f64>> =
        cells.iter().map(|of| of.at(place).and_then(|cell| cell.meeting.share())).collect();
    lateness(&waits).into_iter().enumerate().filter_map(|(at, late)| Some((at, late?)))
}

/// Returns the rank that the others wait for at a place, if any.
pub fn late_rank(cells: &[Cells], place: u64) -> Option<LateRank> {
    let most = late_ranks(cells, place).max_by(|a, b| a.1.total_cmp(&b.1))?;
    (most.1 >= LEAST_LATE).then_some(LateRank { part: most.0, share: most.1 })
}

/// Returns the changes in how much the others wait for each rank, with the index of its part.
pub fn late_changes(cells: &[Cells]) -> Vec<(usize, FigureChange)> {
    let width_ns = cells.iter().map(Cells::width_ns).max().unwrap_or(1);
    let all: Vec<Cells> = cells.iter().map(|of| of.widened(width_ns)).collect();
    let places = all.iter().filter_map(Cells::places).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let Some((first, last)) = places else { return Vec::new() };
    let mut series: Vec<Vec<(u64, f64)>> = vec![Vec::new(); all.len()];
    for place in first..=last {
        for (at, share) in late_ranks(&all, place) {
            series[at].push((place, share));
        }
    }
    let mut found = Vec::new();
    for (part, series) in series.into_iter().enumerate() {
        let values: Vec<f64> = series.iter().map(|(_, share)| *share).collect();
        for change in changes_of_blocks(&values, BLOCK, Figure::Late.effect()) {
            // That the others wait less for a rank is no news beside the rank that they wait for.
            if change.value < change.before || change.value < LEAST_LATE {
                continue;
            }
            let ns = |at: usize| series.get(at).map(|(place, _)| place * width_ns);
            let Some(from_ns) = ns(change.from) else { continue };
            let until_ns = change.until.and_then(ns);
            let figure = Figure::Late;
            found.push((part, FigureChange { figure, change, from_ns, until_ns, step: None }));
        }
    }
    found
}

/// A change of one or several ranks at about the same time.
#[derive(Clone, Debug)]
pub struct JointChange<'a> {
    /// Labels of the ranks.
    pub ranks: Vec<&'a str>,
    /// The change that differs most from its past.
    pub most: FigureChange,
}

/// Returns the changes of all ranks in order of time. Those of several ranks that belong together
/// are one.
pub fn joint_changes(parts: &[(RankContext, RankHistory)]) -> Vec<JointChange<'_>> {
    let mut all: Vec<(&str, FigureChange)> = Vec::new();
    for (at, part) in parts {
        all.extend(part.changes.iter().map(|change| (&*at.label, change.clone())));
    }
    let cells: Vec<Cells> = parts.iter().map(|(_, part)| part.cells.clone()).collect();
    for (part, change) in late_changes(&cells) {
        all.push((&parts[part].0.label, change));
    }
    let length_ns = parts.iter().filter_map(|(_, part)| part.extent_ns).map(|of| of.1).max();
    let together_ns = TOGETHER_NS.max((length_ns.unwrap_or(0) as f64 * TOGETHER) as u64);
    all.sort_by_key(|(_, of)| (of.figure, of.change.kind, of.from_ns));
    let mut joint: Vec<JointChange<'_>> = Vec::new();
    for (rank, one) in all {
        let is_up = |of: &FigureChange| of.change.value >= of.change.before;
        let is_same = |of: &&mut JointChange<'_>| {
            let same = (of.most.figure, of.most.change.kind, is_up(&of.most));
            same == (one.figure, one.change.kind, is_up(&one))
                && one.from_ns.abs_diff(of.most.from_ns) <= together_ns
                && !of.ranks.contains(&rank)
                // Two slow steps are two.
                && (one.change.kind != ChangeKind::Spike || one.step == of.most.step)
        };
        let differs = |of: &FigureChange| (of.change.value - of.change.before).abs();
        match joint.iter_mut().rev().take(8).find(is_same) {
            Some(of) => {
                of.ranks.push(rank);
                if differs(&one) > differs(&of.most) {
                    of.most = one;
                }
            }
            None => joint.push(JointChange { ranks: vec![rank], most: one }),
        }
    }
    joint.sort_by_key(|of| of.most.from_ns);
    joint
}
