//! Relates the clocks of hosts to each other, by the collectives in which their ranks met.
//!
//! Ranks of one host share a clock. Of an imported trace the host is not known, so each file counts
//! as a host of its own; its times are left as they are if no collective contradicts them.

pub mod bounds;
mod of_run;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use tprof_facts::Clock;
use tprof_facts::units::duration;
use tprof_trace::ClockLine;

use crate::meetings::{ComparedCollective, ComparedCollectives, for_each_meeting};
use bounds::{Bounds, FittedLine, as_recorded, fit};
pub use of_run::align;

/// Why a clock is not related to the first one.
pub const NOT_MET: &str = "no collective in which all ranks wait, and of which it is certain who \
                           took part, was recorded on both hosts";
/// Why a clock is not related to the first one although there are collectives.
pub const CONTRADICTORY: &str =
    "the collectives contradict each other: the clock was set, or they were not matched rightly";

/// The clock of a host, or of a file whose host is not known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClockName {
    /// The name of a host.
    Host(String),
    /// The label of a file, such as `rank 3`.
    File(String),
}

/// A rank's collectives, and the clock on which they were recorded.
pub struct RankTimes<'c> {
    /// Name of the clock.
    pub name: ClockName,
    /// Converts the file's times to times since the run began.
    pub clock: Clock,
    /// The rank's collectives.
    pub compared: &'c ComparedCollectives,
}

/// How a clock relates to the run's first one.
#[derive(Clone, Debug, PartialEq)]
pub struct RelatedClock {
    /// Name of the clock.
    pub name: ClockName,
    /// Number of collectives by which the clock was related to the first one, or to the clock next
    /// to it on the way there.
    pub operations: u64,
    /// What to add to the clock's times since the run began to get those of the first clock, or
    /// the reason why that is not known.
    pub line: Result<FittedLine, &'static str>,
}

impl ClockName {
    /// Returns the clock of a file with this host and label.
    pub fn of(host: &str, label: &str) -> ClockName {
        match host {
            "" => ClockName::File(label.to_owned()),
            host => ClockName::Host(host.to_owned()),
        }
    }

    /// The name of the host, or the label of the file.
    pub fn text(&self) -> &str {
        match self {
            ClockName::Host(name) | ClockName::File(name) => name,
        }
    }
}

/// Returns what a reader of corrected times has to know: how well the clocks agree, and which could
/// not be corrected.
pub fn notes(clocks: &[RelatedClock]) -> Vec<String> {
    let mut notes = Vec::new();
    let lines = || clocks.iter().filter_map(|clock| clock.line.ok());
    let moved_ns = lines().map(|fitted| fitted.line.add_ns.unsigned_abs()).max().unwrap_or(0);
    if lines().any(|fitted| fitted.line != ClockLine::default()) {
        notes.push(format!(
            "the clocks of hosts are aligned by collectives, to within {}; times were moved by at \
             most {} (`tprof report stragglers`: clocks)",
            duration(lines().map(|fitted| fitted.error_ns).max().unwrap_or(0)),
            duration(moved_ns)
        ));
    }
    let is_unknown =
        |clock: &&RelatedClock| clock.line.is_err() && matches!(clock.name, ClockName::Host(_));
    notes.extend(clocks.iter().filter(is_unknown).filter_map(|clock| {
        let name = clock.name.text();
        Some(format!("the clock of {name} is not aligned with the others: {}", clock.line.err()?))
    }));
    notes
}

/// The bounds between two clocks. The differences are to be added to the times of the second.
type Pairs = BTreeMap<(u32, u32), Vec<Bounds>>;

/// Relates all clocks of the ranks to that of the first rank, which comes first; the others follow
/// in the order of their first ranks.
pub fn relate(ranks: &[RankTimes<'_>]) -> Vec<RelatedClock> {
    let mut names: Vec<&ClockName> = Vec::new();
    let mut places: BTreeMap<&ClockName, u32> = BTreeMap::new();
    let mut clock_of = Vec::new();
    for rank in ranks {
        let place = *places.entry(&rank.name).or_insert_with(|| {
            names.push(&rank.name);
            names.len() as u32 - 1
        });
        clock_of.push(place);
    }
    let mut related: Vec<RelatedClock> = (names.iter().map(|name| (*name).clone()))
        .map(|name| RelatedClock { name, operations: 0, line: Err(NOT_MET) })
        .collect();
    if names.len() > 1 {
        let pairs = pairs(ranks, &clock_of);
        spread(&pairs, &mut related);
    }
    if let Some(first) = related.first_mut() {
        first.line = Ok(FittedLine { line: ClockLine::default(), error_ns: 0 });
    }
    related
}

/// Collects the bounds of all collectives: between the first clock of each and its other clocks, so
/// that the work grows with the number of ranks and not with its square.
fn pairs(ranks: &[RankTimes<'_>], clock_of: &[u32]) -> Pairs {
    let mut pairs = Pairs::new();
    let compared: Vec<&ComparedCollectives> = ranks.iter().map(|rank| rank.compared).collect();
    // For each clock of a collective: the last entry, and the first end.
    let mut clocks: Vec<(u32, i64, i64)> = Vec::new();
    for_each_meeting(&compared, |meeting| {
        clocks.clear();
        for (met, rank) in meeting {
            let ComparedCollective { start_ns, duration_ns, bounds_clocks, .. } = *met;
            if !bounds_clocks {
                return;
            }
            let entry_ns = ranks[*rank as usize].clock.uncorrected_since_start(start_ns);
            let end_ns = entry_ns.saturating_add_unsigned(duration_ns);
            clocks.push((clock_of[*rank as usize], entry_ns, end_ns));
        }
        clocks.sort_unstable();
        clocks.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                (kept.1, kept.2) = (kept.1.max(next.1), kept.2.min(next.2));
            }
            is_same
        });
        let Some(((hub, hub_entry_ns, hub_end_ns), others)) = clocks.split_first() else { return };
        for (clock, entry_ns, end_ns) in others {
            pairs.entry((*hub, *clock)).or_default().push(Bounds {
                at_ns: *entry_ns,
                least_ns: hub_entry_ns.saturating_sub(*end_ns),
                most_ns: hub_end_ns.saturating_sub(*entry_ns),
                ends_ns: hub_end_ns.saturating_sub(*end_ns),
            });
        }
    });
    pairs
}

/// A line from a clock to one of its neighbours.
struct Edge {
    to: u32,
    line: FittedLine,
    operations: u64,
}

/// Relates all clocks to the first one, each on the way with the smallest error.
fn spread(pairs: &Pairs, related: &mut [RelatedClock]) {
    let mut edges: BTreeMap<u32, Vec<Edge>> = BTreeMap::new();
    for ((hub, clock), bounds) in pairs {
        let is_file = |at: u32| matches!(related[at as usize].name, ClockName::File(_));
        let is_assumed = is_file(*hub) || is_file(*clock);
        let recorded = is_assumed.then(|| as_recorded(bounds)).flatten();
        let Some(line) = recorded.or_else(|| fit(bounds)) else {
            for at in [hub, clock] {
                related[*at as usize].line = Err(CONTRADICTORY);
            }
            continue;
        };
        let operations = bounds.len() as u64;
        // An edge leads away from the first clock, but its line leads towards it.
        edges.entry(*hub).or_default().push(Edge { to: *clock, line, operations });
        let reversed = FittedLine { line: line.line.reversed(), ..line };
        edges.entry(*clock).or_default().push(Edge { to: *hub, line: reversed, operations });
    }
    let mut next = BinaryHeap::from([(Reverse(0_u64), 0_u32)]);
    let mut is_done = vec![false; related.len()];
    related[0].line = Ok(FittedLine { line: ClockLine::default(), error_ns: 0 });
    while let Some((_, at)) = next.pop() {
        if std::mem::replace(&mut is_done[at as usize], true) {
            continue;
        }
        let Ok(here) = related[at as usize].line else { continue };
        for edge in edges.get(&at).into_iter().flatten() {
            let error_ns = here.error_ns.saturating_add(edge.line.error_ns);
            let known = &mut related[edge.to as usize];
            if known.line.is_ok_and(|line| line.error_ns <= error_ns) {
                continue;
            }
            let line = edge.line.line.then(here.line);
            known.line = Ok(FittedLine { line, error_ns });
            known.operations = edge.operations;
            next.push((Reverse(error_ns), edge.to));
        }
    }
}

#[cfg(test)]
mod tests;
