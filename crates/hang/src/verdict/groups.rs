//! Judges ranks that wait for each other in operations of one group.

use super::{Kind, Verdict, capital};
use crate::situation::{Open, RankView, Situation};
use crate::state::{Backend, Operation};
use crate::words;
use std::collections::HashMap;
use tprof_facts::units;

impl Situation<'_> {
    /// Returns the ranks that wait in an operation for longer than usual, those that wait longest
    /// first.
    fn waiting(&self) -> Vec<(&RankView<'_>, &Open)> {
        let stands = |view: &&RankView<'_>| {
            view.state.quiet_ns().is_none_or(|quiet_ns| quiet_ns >= self.limit_ns)
        };
        let mut waiting: Vec<_> = self
            .live()
            .filter(stands)
            .filter_map(|view| Some((view, view.open.as_ref()?)))
            .collect();
        waiting.sort_by_key(|(_, open)| std::cmp::Reverse(open.operation.age_ns));
        waiting
    }

    /// Whether operations of PyTorch's and MPI's groups, which don't tell their group, had the same
    /// names at the same places in all ranks. Otherwise ranks have operations of different groups,
    /// and their numbers can't be compared.
    fn has_one_order(&self) -> bool {
        let of = |view: &RankView<'_>, backend: Backend| {
            let groups = view.state.groups.iter().filter(|group| group.backend == backend);
            let over = groups.flat_map(|group| &group.recent).filter(|operation| operation.is_over);
            over.map(|operation| (operation.number, operation.name.clone())).collect::<Vec<_>>()
        };
        [Backend::Torch, Backend::Mpi].into_iter().all(|backend| {
            let mut known: HashMap<u64, String> = HashMap::new();
            let all = self.live().flat_map(|view| of(view, backend));
            all.into_iter()
                .all(|(number, name)| *known.entry(number).or_insert(name.clone()) == name)
        })
    }

    /// Whether all ranks of a group have entered an operation.
    fn all_entered(&self, open: &Open) -> bool {
        let lack = || self.live().map(|view| view.lacks(open));
        let entered = lack().filter(|lacks| *lacks == Some(false)).count();
        let is_whole = open.size.is_none_or(|size| entered >= size as usize);
        is_whole && !lack().any(|lacks| lacks == Some(true))
    }

    /// Returns the number of ranks at the same place of the same group's order.
    fn at(&self, open: &Open) -> usize {
        let own = self.live().filter_map(|view| view.open.as_ref());
        own.filter(|other| other.is_same_place(open)).count()
    }
}

/// A rank has ended, and others wait in an operation.
pub(super) fn dead(situation: &Situation<'_>) -> Option<Verdict> {
    let waiting = situation.waiting();
    let (_, open) = waiting.iter().find(|(_, open)| open.is_certain)?;
    // A rank that has failed is more likely the cause than one that ended in order.
    let ended = situation.ranks.iter().filter(|view| view.state.end.is_some());
    let has_failed = |view: &&RankView<'_>| {
        let end = view.state.end.as_ref();
        end.is_some_and(|end| end.signal.is_some() || end.status.is_some_and(|status| status != 0))
    };
    let view = ended.max_by_key(|view| (has_failed(view), std::cmp::Reverse(view.state.rank)))?;
    let end = view.state.end.as_ref()?;
    let text = format!(
        "{} {} {} ago. {} in {}",
        words::rank(view.state),
        words::end(end),
        units::duration(end.age_ns),
        words::waiting(situation.at(open)),
        words::operation(open),
    );
    Some(Verdict::about(Kind::DeadRank, view, text))
}

/// Ranks are in different operations at the same place of one group's order.
pub(super) fn mismatch(situation: &Situation<'_>, unanswered: usize) -> Option<Verdict> {
    let mut waiting = situation.waiting();
    // Without groups, operations with the same number may be of different groups. Only if every
    // rank waits, and all had the same operations before, do they tell.
    if unanswered > 0 || waiting.len() < situation.live().count() || !situation.has_one_order() {
        waiting.retain(|(_, open)| open.group.is_some());
    }
    let pairs = waiting.iter().enumerate();
    let (one, other, number) = pairs
        .flat_map(|(at, one)| {
            let rest = waiting.iter().skip(at + 1);
            rest.filter_map(move |other| Some((one, other, differ(one, other)?)))
        })
        .next()?;
    let described = |view: &RankView<'_>, operation: &Operation| {
        let bytes =
            operation.bytes.map_or_else(String::new, |b| format!(" of {}", units::bytes(b)));
        let place = view.state.driving().map(words::place).unwrap_or_default();
        format!("{} is in {}{bytes}, {place}", words::rank(view.state), operation.name)
    };
    let text = format!(
        "ranks differ in operation {}: {}; {}",
        units::count(number.0.number),
        described(one.0, number.0),
        described(other.0, number.1),
    );
    Some(Verdict::about(Kind::Mismatch, other.0, text))
}

/// Returns the operations of two ranks that have the same number in the same group and differ. Of
/// NCCL's operations the first that differ are the cause, because later ones are only queued.
fn differ<'v>(
    (one, of_one): &(&'v RankView<'_>, &'v Open),
    (other, of_other): &(&'v RankView<'_>, &'v Open),
) -> Option<(&'v Operation, &'v Operation)> {
    if (of_one.backend, &of_one.group) != (of_other.backend, &of_other.group) {
        return None;
    }
    if of_one.group.is_none() {
        let (a, b) = (&of_one.operation, &of_other.operation);
        return (a.number == b.number && a.name != b.name).then_some((a, b));
    }
    let recent = |view: &RankView<'v>| {
        let mut groups = view.state.groups.iter();
        groups.find(|g| g.backend == of_one.backend && g.id == of_one.group).map(|g| &g.recent)
    };
    recent(one)?.iter().find_map(|a| {
        let b = recent(other)?.iter().find(|b| b.number == a.number)?;
        let sizes = a.bytes.zip(b.bytes).is_some_and(|(a, b)| a != b);
        (a.name != b.name || sizes).then_some((a, b))
    })
}

/// Ranks wait in an operation that others have not entered.
pub(super) fn late(situation: &Situation<'_>) -> Option<Verdict> {
    let waiting = situation.waiting();
    waiting.iter().find_map(|(_, open)| late_to(situation, open))
}

fn late_to<'v>(situation: &'v Situation<'_>, mut open: &'v Open) -> Option<Verdict> {
    if open.group.is_none() && !situation.has_one_order() {
        return None;
    }
    // A late rank may itself wait for another one, in another group.
    for _ in 0..situation.ranks.len() {
        let late: Vec<&RankView<'_>> =
            situation.live().filter(|view| view.lacks(open) == Some(true)).collect();
        let first = late.first()?;
        let waits_for_none =
            |view: &&&RankView<'_>| view.open.as_ref().is_none_or(|own| situation.all_entered(own));
        match late.iter().find(waits_for_none) {
            Some(view) => return Some(is_late(situation, view, open, late.len() - 1)),
            None => open = first.open.as_ref()?,
        }
    }
    None
}

/// Returns the verdict about a rank that has not entered an operation, as `others` have not.
fn is_late(situation: &Situation<'_>, view: &RankView<'_>, open: &Open, others: usize) -> Verdict {
    // All have entered its last operation, so it waits for other work of its device.
    let work = view.open.as_ref().and_then(|_| super::device_work(view, situation.limit_ns));
    let kind = if work.is_some() { Kind::Kernel } else { Kind::LateRank };
    let others = match others {
        0 => String::new(),
        count => format!(" (and {count} more)"),
    };
    let text = format!(
        "{}{others} has not entered {}: {}{}{}. {} for it",
        words::rank(view.state),
        words::operation(open),
        words::doing(view),
        words::quiet(view.state),
        work.map(|work| format!(". {}", capital(&work))).unwrap_or_default(),
        words::waiting(situation.at(open)),
    );
    Verdict::about(kind, view, text)
}

/// All ranks are in the same operation.
pub(super) fn network(situation: &Situation<'_>, unanswered: usize) -> Option<Verdict> {
    let waiting = situation.waiting();
    let (view, open) = waiting.first()?;
    let count = situation.live().count();
    let is_whole = open.size.is_none_or(|size| size as usize == situation.at(open));
    let is_everyone = situation.at(open) == count && waiting.len() == count;
    let is_same = |other: &Open| other.is_certain && other.operation.name == open.operation.name;
    let is_one = waiting.iter().all(|(_, other)| is_same(other))
        && (open.group.is_some() || situation.has_one_order());
    if unanswered > 0 || count < 2 || !(is_everyone && is_whole && is_one) {
        return None;
    }
    // Calls of MPI are recorded when they return. Only an open call tells since when it is open.
    let is_long = |view: &RankView<'_>| {
        view.state.open_call().is_some_and(|call| call.age_ns >= situation.limit_ns)
    };
    if open.backend == Backend::Mpi && !waiting.iter().all(|(view, _)| is_long(view)) {
        return None;
    }
    let text = format!(
        "all {count} ranks are in {} for {} and none goes on: the network or its library holds \
         them up. {} {}",
        words::operation(open),
        units::duration(open.operation.age_ns),
        capital(&words::rank(view.state)),
        words::doing(view).trim_start_matches("it "),
    );
    Some(Verdict { rank: None, ..Verdict::about(Kind::Network, view, text) })
}
