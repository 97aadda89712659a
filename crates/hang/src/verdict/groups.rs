//! Judges ranks that wait for each other in operations of one group.

use super::{Kind, Verdict, capital};
use crate::situation::{Open, Place, RankView, Situation};
use crate::state::{Backend, Operation};
use crate::words;
use std::collections::{BTreeMap, HashMap, HashSet};
use tprof_facts::units;

impl Situation<'_> {
    /// Returns the ranks that wait in an operation for longer than usual, those that wait longest
    /// first.
    fn waiting(&self) -> Vec<(&RankView<'_>, &Open)> {
        let stands = |view: &&RankView<'_>| {
            let quiet_ns = view.state.quiet_ns();
            match view.state.dump {
                Some(_) => !view.goes_on,
                None => quiet_ns.is_none_or(|quiet_ns| quiet_ns >= self.limit_ns),
            }
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
        [Backend::Torch, Backend::Mpi].into_iter().all(|backend| {
            let groups = self.live().flat_map(|view| &view.state.groups);
            let of = groups.filter(|group| group.backend == backend);
            let mut over = of.flat_map(|group| &group.recent).filter(|of| of.is_over);
            let mut known: HashMap<u64, &str> = HashMap::new();
            over.all(|of| *known.entry(of.number).or_insert(&of.name) == of.name)
        })
    }

    /// Whether all ranks of a group have entered an operation.
    fn all_entered(&self, open: &Open) -> bool {
        let lacks: Vec<_> = self.concerned(open).map(|view| view.lacks(open)).collect();
        let entered = lacks.iter().filter(|lacks| **lacks == Some(false)).count();
        let is_whole = open.size.is_none_or(|size| entered >= size as usize);
        is_whole && !lacks.contains(&Some(true))
    }

    /// Returns the number of ranks at the same place of the same group's order.
    fn number_inside(&self, open: &Open) -> usize {
        self.inside(open).count()
    }
}

/// Keeps one rank for each place in a group's order: the first.
fn one_of_each_place<'v, 's: 'v>(
    waiting: impl IntoIterator<Item = (&'v RankView<'s>, &'v Open)>,
) -> impl Iterator<Item = (&'v RankView<'s>, &'v Open)> {
    let mut seen: HashSet<Place> = HashSet::new();
    waiting.into_iter().filter(move |(_, open)| seen.insert(open.place()))
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
        words::waiting(situation.number_inside(open)),
        words::operation(open),
    );
    Some(Verdict::about(Kind::DeadRank, view, text))
}

/// Ranks are in different operations at the same place of one group's order.
pub(super) fn mismatch(situation: &Situation<'_>, unanswered: usize) -> Option<Verdict> {
    mismatch_in_group(situation).or_else(|| mismatch_without_groups(situation, unanswered))
}

/// Ranks have different operations at the same place of a known group's order. Of NCCL's operations
/// the first that differ are the cause, because later ones are only queued.
fn mismatch_in_group(situation: &Situation<'_>) -> Option<Verdict> {
    let mut groups: Vec<(Backend, &str)> = Vec::new();
    let waiting = situation.waiting();
    let waited = waiting.iter().filter_map(|(_, o)| Some((o.backend, o.group.as_deref()?)));
    // The job of a dump has ended. A difference in it is the cause even if no rank waits in that group
    // any more.
    let dumped = situation.live().filter(|view| view.state.dump.is_some());
    let dumped = dumped.flat_map(|view| &view.state.groups);
    let dumped = dumped.filter_map(|group| Some((group.backend, group.id.as_deref()?)));
    let mut seen = HashSet::new();
    groups.extend(waited.chain(dumped).filter(|group| seen.insert(*group)));
    groups.into_iter().find_map(|(backend, id)| {
        let mut at: BTreeMap<u64, Vec<(&RankView<'_>, &Operation)>> = BTreeMap::new();
        for view in situation.members(backend, id) {
            let recent = view.group(backend, Some(id)).map(|group| &group.recent);
            for operation in recent.into_iter().flatten() {
                at.entry(operation.number).or_default().push((view, operation));
            }
        }
        at.values().find_map(|made| minority_differs(Some(id), made, Operation::differs))
    })
}

/// Returns the verdict about operations at one place of an order, if they differ. Most ranks are
/// right.
fn minority_differs(
    group: Option<&str>,
    made: &[(&RankView<'_>, &Operation)],
    differ_in: impl Fn(&Operation, &Operation) -> bool,
) -> Option<Verdict> {
    let (_, first) = made.first()?;
    let (others, same): (Vec<_>, Vec<_>) =
        made.iter().copied().partition(|(_, operation)| differ_in(operation, first));
    let (right, wrong) =
        if others.len() > same.len() { (&others, &same) } else { (&same, &others) };
    wrong.first().map(|_| differ(group, right, wrong))
}

/// Without groups, operations with the same number may be of different groups. Only if every rank
/// waits, and all had the same operations before, do they tell.
fn mismatch_without_groups(situation: &Situation<'_>, unanswered: usize) -> Option<Verdict> {
    let mut waiting = situation.waiting();
    let is_everyone = waiting.len() == situation.live().count();
    waiting.retain(|(_, open)| open.group.is_none());
    if unanswered > 0 || !is_everyone || !situation.has_one_order() {
        return None;
    }
    let mut at: BTreeMap<Place, Vec<(&RankView<'_>, &Operation)>> = BTreeMap::new();
    for (view, open) in &waiting {
        at.entry(open.place()).or_default().push((*view, &open.operation));
    }
    at.values_mut().find_map(|made| {
        made.sort_by_key(|(view, _)| view.state.rank);
        minority_differs(None, made, |one, other| one.name != other.name)
    })
}

impl Operation {
    /// Whether this can't be the same operation as that of another rank. What is unknown of one
    /// doesn't differ.
    fn differs(&self, other: &Operation) -> bool {
        let bytes = self.bytes.zip(other.bytes).is_some_and(|(a, b)| a != b);
        let tensors =
            self.tensors.as_ref().zip(other.tensors.as_ref()).is_some_and(|(a, b)| a != b);
        self.name != other.name || bytes || tensors
    }
}

/// Returns the verdict about ranks whose operation differs from that of the right ones.
fn differ(
    group: Option<&str>,
    right: &[(&RankView<'_>, &Operation)],
    wrong: &[(&RankView<'_>, &Operation)],
) -> Verdict {
    let described = |made: &[(&RankView<'_>, &Operation)]| {
        let Some((view, operation)) = made.first() else { return String::new() };
        let bytes = operation.bytes.map(|bytes| format!(" of {}", units::bytes(bytes)));
        let tensors = operation.tensors.as_ref().map(|tensors| format!(" of {tensors}"));
        let what = bytes.or(tensors).unwrap_or_default();
        let name = format!("{}{what}", operation.name);
        let rest: Vec<u32> = made.iter().skip(1).map(|(view, _)| view.state.rank).collect();
        let rank = format!("{}{}", words::rank(view.state), words::more(&rest));
        match view.state.dump {
            Some(_) => format!("{rank} has {name}{}", words::called(operation.place.as_ref())),
            None => {
                let place = view.state.driving().map(words::place).unwrap_or_default();
                format!("{rank} is in {name}, {place}")
            }
        }
    };
    let number = wrong.first().map_or(0, |(_, operation)| operation.number);
    let of = group.map(|group| format!(" of group {group}")).unwrap_or_default();
    let (number, right, wronged) = (units::count(number), described(right), described(wrong));
    let text = format!("ranks differ in operation {number}{of}: {right}; {wronged}");
    match wrong.first() {
        Some((view, operation)) => {
            let verdict = Verdict::about(Kind::Mismatch, view, text);
            match &operation.place {
                Some(place) => verdict.at(Some(place)),
                None => verdict,
            }
        }
        None => Verdict::new(Kind::Mismatch, text),
    }
}

/// Says that no rank of the dumps waits for another, and which is behind all the same.
pub(super) fn nobody_waits(situation: &Situation<'_>) -> String {
    let lasts = || situation.live().filter_map(|view| Some((view, Open::last(view.state)?)));
    let mut seen = HashSet::new();
    let behind = lasts().filter(|(_, last)| seen.insert(last.place())).find_map(|(view, last)| {
        let late: Vec<u32> = situation
            .concerned(&last)
            .filter(|other| other.lacks(&last) == Some(true))
            .map(|other| other.state.rank)
            .collect();
        let (ranks, rank) = (words::ranks(&late), words::rank(view.state));
        let has = if late.len() == 1 { "has" } else { "have" };
        let operation = words::operation(&last);
        let text = format!("{} {has} not entered {operation}, which {rank} has", capital(&ranks));
        (!late.is_empty()).then_some(text)
    });
    match (situation.live().any(|view| view.open.is_some()), behind, lasts().next()) {
        (true, ..) => "operations between ranks go on: none was open for a second".to_owned(),
        (false, Some(behind), _) => format!("no operation was open. {behind}"),
        (false, None, Some((_, last))) => {
            format!("no operation was open; the last is {}", words::operation(&last))
        }
        (false, None, None) => "no operation was recorded".to_owned(),
    }
}

/// A rank that has not entered an operation in which others wait.
pub struct Late<'v, 's> {
    pub view: &'v RankView<'s>,
    open: &'v Open,
    /// The other ranks that have not entered it.
    others: Vec<u32>,
}

/// Ranks wait in an operation that others have not entered.
pub(super) fn late(situation: &Situation<'_>) -> Option<Verdict> {
    find_late(situation).map(|late| late.verdict(situation))
}

/// Returns the rank that others wait for, if there is one.
pub fn find_late<'v, 's>(situation: &'v Situation<'s>) -> Option<Late<'v, 's>> {
    let has_one_order = situation.has_one_order();
    let mut waiting = one_of_each_place(situation.waiting())
        .filter(|(_, open)| open.group.is_some() || has_one_order);
    waiting.find_map(|(_, open)| Late::to(situation, open))
}

impl<'v, 's> Late<'v, 's> {
    fn to(situation: &'v Situation<'s>, mut open: &'v Open) -> Option<Late<'v, 's>> {
        // A late rank may itself wait for another one, in another group.
        let mut whole: HashMap<Place, bool> = HashMap::new();
        for _ in 0..situation.ranks.len() {
            let late: Vec<&RankView<'s>> =
                situation.concerned(open).filter(|view| view.lacks(open) == Some(true)).collect();
            let first = late.first()?;
            let mut all_entered = |own: &Open| {
                *whole.entry(own.place()).or_insert_with(|| situation.all_entered(own))
            };
            let mut waits_for_none =
                |view: &&RankView<'_>| view.open.as_ref().is_none_or(&mut all_entered);
            let Some(view) = late.iter().copied().find(|view| waits_for_none(view)) else {
                open = first.open.as_ref()?;
                continue;
            };
            let others = late.iter().map(|view| view.state.rank);
            let others = others.filter(|rank| *rank != view.state.rank).collect();
            return Some(Late { view, open, others });
        }
        None
    }

    /// Says how many ranks wait for it.
    pub fn waiting(&self, situation: &Situation<'_>) -> String {
        words::waiting(situation.number_inside(self.open))
    }

    fn verdict(&self, situation: &Situation<'_>) -> Verdict {
        let view = self.view;
        // All have entered its last operation, so it waits for other work of its device.
        let work = view.open.as_ref().and_then(|_| super::device_work(view, situation.limit_ns));
        let kind = if work.is_some() { Kind::Kernel } else { Kind::LateRank };
        let text = format!(
            "{}{} has not entered {}: {}{}{}. {} for it",
            words::rank(view.state),
            words::more(&self.others),
            words::operation(self.open),
            words::doing(view),
            words::quiet(view.state),
            work.map(|work| format!(". {}", capital(&work))).unwrap_or_default(),
            self.waiting(situation),
        );
        Verdict::about(kind, view, text)
    }
}

/// The devices of some ranks have begun an operation, and those of others have not, although it was
/// called there too.
pub(super) fn queued(situation: &Situation<'_>) -> Option<Verdict> {
    one_of_each_place(situation.waiting()).find_map(|(_, open)| {
        let here: Vec<_> = situation.inside(open).collect();
        let has_begun = |begun| {
            here.iter().filter(move |(_, own)| own.operation.has_begun == Some(begun)).collect()
        };
        let (begun, held): (Vec<_>, Vec<_>) = (has_begun(true), has_begun(false));
        let ((first, _), others) = held.split_first()?;
        let others: Vec<u32> = others.iter().map(|(view, _)| view.state.rank).collect();
        let waiting = if begun.is_empty() { return None } else { words::waiting(begun.len()) };
        let text = format!(
            "the device of {}{} has not begun {}, which was called{}: earlier work of that device \
             is not over. {waiting} in it",
            words::rank(first.state),
            words::more(&others),
            words::operation(open),
            words::quiet(first.state),
        );
        Some(Verdict::about(Kind::Kernel, first, text))
    })
}

/// All ranks are in the same operation.
pub(super) fn network(situation: &Situation<'_>, unanswered: usize) -> Option<Verdict> {
    if let Some(verdict) = network_of_group(situation) {
        return Some(verdict);
    }
    let waiting = situation.waiting();
    let (view, open) = waiting.first()?;
    let count = situation.live().count();
    let is_whole = open.size.is_none_or(|size| size as usize == situation.number_inside(open));
    let is_everyone = situation.number_inside(open) == count && waiting.len() == count;
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

/// All ranks of a group whose ranks all have dumps are in an operation, or have left it.
fn network_of_group(situation: &Situation<'_>) -> Option<Verdict> {
    let waiting = situation.waiting().into_iter();
    let waiting = waiting.filter(|(view, open)| view.state.dump.is_some() && open.is_certain);
    one_of_each_place(waiting).find_map(|(view, open)| {
        let size = open.size? as usize;
        let lacks = situation.concerned(open).map(|view| view.lacks(open));
        let entered = lacks.filter(|lacks| *lacks == Some(false)).count();
        let inside = situation.number_inside(open);
        if entered < size {
            return None;
        }
        let (operation, age) = (words::operation(open), units::duration(open.operation.age_ns));
        let place = words::called(open.operation.place.as_ref());
        let (who, left) = match size.saturating_sub(inside) {
            0 => (format!("all {size} ranks are"), String::new()),
            left => {
                let rank = capital(&words::rank(view.state));
                (format!("{rank} is"), format!(", which {left} of its {size} ranks have left"))
            }
        };
        let text = format!(
            "{who} in {operation}{left}{place}, for {age}, and none goes on: the network or its \
             library holds them up"
        );
        let rank = Some(view.state.rank).filter(|_| inside < size);
        Some(Verdict { rank, ..Verdict::about(Kind::Network, view, text) })
    })
}

/// All ranks that have a dump are in an operation, and others of its group have none.
pub(super) fn without_dump(situation: &Situation<'_>) -> Option<Verdict> {
    one_of_each_place(situation.waiting()).find_map(|(view, open)| {
        let group = view.group(open.backend, open.group.as_deref())?;
        let lacks = situation.concerned(open).any(|view| view.lacks(open) == Some(true));
        if group.without_dump.is_empty() || lacks {
            return None;
        }
        let (waiting, operation) = (words::waiting(situation.number_inside(open)), words::operation(open));
        let missing = words::ranks(&group.without_dump);
        let text = format!(
            "{waiting} in {operation}{}. Every rank of the group that has a dump has entered it. \
             There is no dump of {missing}, which may be what the others wait for: it may have ended, \
             or stand still so that it could write none",
            words::called(open.operation.place.as_ref()),
        );
        Some(Verdict { rank: None, ..Verdict::about(Kind::Unknown, view, text) })
    })
}
