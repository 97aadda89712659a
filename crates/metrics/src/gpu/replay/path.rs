//! Finds the stretches that decided how long each step took.

use std::collections::BTreeMap;

use tprof_rank::base::stats::median;

use super::graph::GraphRow;
use super::replayed::Replayed;
use super::{JobGraph, OwnPlace, RankSteps};

/// Stretches that make up less than this share of the steps are left out.
const LEAST_SHARE: f64 = 0.01;

/// Stands for all places of a rank's steps: those of a rank that others do not share.
const ALL_PLACES: u32 = u32::MAX;

/// A rank's stretches on the path through the steps, before one place in them. Of a rank that sends
/// and receives, before all places at which it does not meet ranks that do the same as it does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecidedSteps {
    /// Index of the rank.
    pub rank: usize,
    /// The code that took longest there, compared with the other ranks; `None` if it is not known.
    pub place: Option<OwnPlace>,
    /// Whether the rank is compared with ranks that it sends to or receives from, such as the other
    /// stages of a pipeline, and not with ranks that do the same as it does.
    pub is_of_stage: bool,
    /// Number of steps in which no other stretch was longer than the others' by more.
    pub steps: u64,
    /// Time of the stretches on the path, ns.
    pub own_ns: u64,
    /// The part of it by which they were longer than the median of the other ranks', ns.
    pub longer_ns: u64,
}

/// What decided the steps, and how many steps there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// The stretches that were longer than the others' by at least 1 % of the steps, most time
    /// first.
    pub stretches: Vec<DecidedSteps>,
    /// Number of steps that follow another, so that their length is known.
    pub steps: u64,
    /// Time of all steps, ns.
    pub total_ns: u64,
    /// The part of it in which ranks transferred, ns.
    pub transfer_ns: u64,
}

/// A stretch of a rank's own time on the path.
struct OwnStretch {
    rank: u32,
    /// The row before which it lies.
    row: u32,
    ns: u64,
    /// Whether it lies before the meeting, and not beside the meeting before.
    is_before: bool,
}

/// Walks back from the end of each step to the end of the step before. `None` if the ranks'
/// meetings have no common order.
pub fn decided_steps(graph: &JobGraph<'_>) -> Option<Decided> {
    let replayed = graph.replay_as_measured()?;
    let mut decided = Decided::default();
    let mut sums: BTreeMap<(u32, u32), DecidedSteps> = BTreeMap::new();
    for (_, at, length_ns) in replayed.lengths() {
        decided.steps += 1;
        decided.total_ns += length_ns.max(0) as u64;
        let (stretches, transfer_ns) = path(graph, &replayed, at);
        decided.transfer_ns += transfer_ns;
        let mut longer: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for stretch in stretches {
            let row = &graph.rows[stretch.rank as usize][stretch.row as usize];
            let typical = (graph.typical((stretch.rank, stretch.row), |of| of.before_ns))
                .filter(|_| stretch.is_before);
            let is_by_ratio = typical.is_some_and(|of| of.is_by_ratio);
            let key = (stretch.rank, if is_by_ratio { ALL_PLACES } else { row.of.place });
            let longer_ns = typical.map_or(0, |typical| stretch.ns.saturating_sub(typical.ns));
            let sum = sums.entry(key).or_default();
            sum.own_ns += stretch.ns;
            sum.longer_ns += longer_ns;
            *longer.entry(key).or_default() += longer_ns;
        }
        let longest = longer.into_iter().filter(|(_, ns)| *ns > 0);
        if let Some((key, _)) = longest.max_by_key(|(key, ns)| (*ns, std::cmp::Reverse(*key))) {
            sums.entry(key).or_default().steps += 1;
        }
    }
    let least_ns = LEAST_SHARE * decided.total_ns as f64;
    sums.retain(|_, sum| sum.longer_ns > 0 && sum.longer_ns as f64 >= least_ns);
    let of_place = |((rank, place), sum): ((u32, u32), DecidedSteps)| DecidedSteps {
        rank: rank as usize,
        place: longest_place(graph, rank as usize, place),
        is_of_stage: place == ALL_PLACES,
        ..sum
    };
    decided.stretches = sums.into_iter().map(of_place).collect();
    decided.stretches.sort_by_key(|of| (std::cmp::Reverse(of.longer_ns), of.rank));
    Some(decided)
}

/// Returns the code at a place of a rank's steps whose time exceeds the median of the other ranks'
/// by most.
fn longest_place(graph: &JobGraph<'_>, rank: usize, place: u32) -> Option<OwnPlace> {
    let own = times_at(graph.ranks[rank], place);
    let others = || (0_u32..).zip(graph.ranks).filter(|(other, _)| *other as usize != rank);
    let is_compared = |(other, _): &(u32, &&RankSteps)| {
        place != ALL_PLACES || graph.stages.are_joined(rank as u32, *other)
    };
    let of_others: Vec<_> =
        others().filter(is_compared).map(|(_, steps)| times_at(steps, place)).collect();
    let longer_ns = |(code, ns): &(&OwnPlace, u64)| {
        let of_other = |other: &BTreeMap<&OwnPlace, u64>| other.get(code).copied().unwrap_or(0);
        let of_others: Vec<u64> = of_others.iter().map(of_other).collect();
        (ns.saturating_sub(median(of_others)), *ns)
    };
    own.into_iter().max_by_key(longer_ns).map(|(code, _)| code.clone())
}

/// Returns the time of a rank in each code at a place of its steps, or at all places, ns.
fn times_at(steps: &RankSteps, place: u32) -> BTreeMap<&OwnPlace, u64> {
    let mut times = BTreeMap::new();
    let is_there = |(at, _): &(u32, &Vec<(OwnPlace, u64)>)| place == ALL_PLACES || *at == place;
    let there = (0_u32..).zip(&steps.places).filter(is_there);
    for (code, ns) in there.flat_map(|(_, codes)| codes) {
        *times.entry(code).or_default() += ns;
    }
    times
}

/// Walks back through a step. Returns the ranks' own stretches on the way, and the time of
/// transfers, ns.
fn path(graph: &JobGraph<'_>, replayed: &Replayed, at: usize) -> (Vec<OwnStretch>, u64) {
    let (begun_ns, step) = (replayed.steps[at - 1].end_ns, replayed.steps[at]);
    let (mut stretches, mut transfer_ns) = (Vec::new(), 0);
    let (mut rank, mut from, mut now_ns) = (step.rank, step.last, step.end_ns);
    let since = |from_ns: i64, to_ns: i64| (to_ns - from_ns.max(begun_ns)).max(0) as u64;
    while now_ns > begun_ns {
        let Some(&GraphRow { meeting, .. }) = graph.rows[rank as usize].get(from.row as usize)
        else {
            break;
        };
        let mut row = from.row;
        if from.by_meeting {
            let (_, place) = replayed.ends[meeting as usize];
            (rank, row) = graph.members_of(meeting)[place as usize];
        }
        let (entry_ns, _) = replayed.entries[rank as usize][row as usize];
        match from.by_meeting {
            true => transfer_ns += since(entry_ns, now_ns),
            false => {
                let ns = since(entry_ns, now_ns);
                stretches.push(OwnStretch { rank, row, ns, is_before: false });
            }
        }
        now_ns = entry_ns;
        // Back over meetings that the rank entered without waiting for one.
        while graph.rows[rank as usize][row as usize].of.overlaps && row > 0 && now_ns > begun_ns {
            let (entry_ns, _) = replayed.entries[rank as usize][row as usize - 1];
            let ns = since(entry_ns, now_ns);
            stretches.push(OwnStretch { rank, row, ns, is_before: false });
            (row, now_ns) = (row - 1, entry_ns);
        }
        let GraphRow { of, is_first, .. } = graph.rows[rank as usize][row as usize];
        if is_first || now_ns <= begun_ns {
            break;
        }
        let ready_ns = now_ns - of.before_ns as i64;
        let ns = since(ready_ns, now_ns);
        stretches.push(OwnStretch { rank, row, ns, is_before: true });
        from = replayed.entries[rank as usize][row as usize].1;
        now_ns = ready_ns;
    }
    (stretches, transfer_ns)
}
