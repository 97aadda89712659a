//! What each rank does, concluded from its state: whether it goes on, and which operation between
//! ranks it is in.

use crate::state::{Backend, GroupState, HostState, Operation, RankState};
use std::collections::HashMap;

/// A rank stands still only if nothing of it was recorded for this long, or for [`TIMES`] of its
/// usual step.
const LEAST_NS: u64 = 1_000_000_000;
const TIMES: u64 = 3;
/// A process that uses at least this share of a core computes.
const BUSY_SHARE: f64 = 0.5;
/// A process that reads or writes at least this many bytes between two readings goes on.
const MUCH_BYTES: u64 = 1 << 20;

/// An operation between ranks that a rank has entered and not left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    pub backend: Backend,
    /// Identity of the group; `None` if the library doesn't tell.
    pub group: Option<String>,
    /// Number of ranks in the group, if known.
    pub size: Option<u32>,
    pub operation: Operation,
    /// Whether the rank is in it for certain. Otherwise it is the last one that the rank has entered,
    /// and the rank runs: it may wait by spinning, or do something else.
    pub is_certain: bool,
}

/// A rank, and what was concluded about it.
#[derive(Clone, Debug)]
pub struct RankView<'s> {
    pub state: &'s RankState,
    pub open: Option<Open>,
    /// Whether it goes on.
    pub goes_on: bool,
}

/// A place in the order of a group's operations: the library, the group and the number.
pub type Place = (Backend, Option<String>, u64);

/// All ranks that answered. There may be thousands, so no judgement compares each with each: ranks
/// are found by the group and by the place of their operation.
#[derive(Clone, Debug)]
pub struct Situation<'s> {
    pub ranks: Vec<RankView<'s>>,
    /// Time without any sign of progress after which a rank stands still, ns.
    pub limit_ns: u64,
    /// The ranks that have not ended, by the groups in which they communicate.
    members: HashMap<Backend, HashMap<&'s str, Vec<usize>>>,
    /// The ranks that have not ended, by the place of the operation in which they are.
    inside: HashMap<Place, Vec<usize>>,
}

impl<'s> Situation<'s> {
    /// Concludes what each rank does.
    pub fn of(hosts: &'s [HostState]) -> Situation<'s> {
        let states = hosts.iter().flat_map(|host| &host.ranks);
        let usual = states.filter_map(|state| state.step.as_ref()?.usual_ns).max();
        Situation::with_limit(hosts, LEAST_NS.max(usual.unwrap_or(0).saturating_mul(TIMES)))
    }

    /// Concludes what each rank does, if ranks stand still after `limit_ns`.
    pub fn with_limit(hosts: &'s [HostState], limit_ns: u64) -> Situation<'s> {
        let states = || hosts.iter().flat_map(|host| &host.ranks);
        let view = |state: &'s RankState| {
            let open = open_of(state);
            let goes_on = goes_on(state, open.is_some(), limit_ns);
            RankView { state, open, goes_on }
        };
        let mut ranks: Vec<RankView<'s>> = states().map(view).collect();
        ranks.sort_by_key(|view| view.state.rank);
        let mut members: HashMap<_, HashMap<_, Vec<usize>>> = HashMap::new();
        let mut inside: HashMap<Place, Vec<usize>> = HashMap::new();
        for (at, view) in ranks.iter().enumerate().filter(|(_, view)| view.state.end.is_none()) {
            for group in &view.state.groups {
                let Some(id) = group.id.as_deref() else { continue };
                let of_group = members.entry(group.backend).or_default().entry(id).or_default();
                if of_group.last() != Some(&at) {
                    of_group.push(at);
                }
            }
            if let Some(open) = &view.open {
                inside.entry(open.place()).or_default().push(at);
            }
        }
        Situation { ranks, limit_ns, members, inside }
    }

    /// Returns the ranks that have not ended.
    pub fn live(&self) -> impl Iterator<Item = &RankView<'s>> {
        self.ranks.iter().filter(|view| view.state.end.is_none())
    }

    /// Returns the ranks that have not ended and communicate in a group.
    pub fn members<'a>(
        &'a self,
        backend: Backend,
        id: &str,
    ) -> impl Iterator<Item = &'a RankView<'s>> + use<'a, 's> {
        let members = self.members.get(&backend).and_then(|groups| groups.get(id));
        self.at(members.map_or(&[], Vec::as_slice))
    }

    /// Returns the ranks whose state may tell whether they have entered an operation: those of its
    /// group, or all that have not ended, if the library doesn't tell the group.
    pub fn concerned<'a>(&'a self, open: &Open) -> Box<dyn Iterator<Item = &'a RankView<'s>> + 'a> {
        match open.group.as_deref() {
            Some(id) => Box::new(self.members(open.backend, id)),
            None => Box::new(self.live()),
        }
    }

    /// Returns the ranks that are at the same place of the same group's order, with the operation of
    /// each.
    pub fn inside<'a>(
        &'a self,
        open: &Open,
    ) -> impl Iterator<Item = (&'a RankView<'s>, &'a Open)> + use<'a, 's> {
        self.at(self.inside.get(&open.place()).map_or(&[], Vec::as_slice))
            .filter_map(|view| Some((view, view.open.as_ref()?)))
    }

    fn at<'a>(
        &'a self,
        indexes: &'a [usize],
    ) -> impl Iterator<Item = &'a RankView<'s>> + use<'a, 's> {
        indexes.iter().filter_map(|at| self.ranks.get(*at))
    }
}

impl<'s> RankView<'s> {
    /// Returns what the rank has done in one group.
    pub fn group(&self, backend: Backend, id: Option<&str>) -> Option<&'s GroupState> {
        let mut groups = self.state.groups.iter();
        groups.find(|group| group.backend == backend && group.id.as_deref() == id)
    }

    /// Whether this rank certainly has not entered an operation that others wait in. `None` if its
    /// state can't tell.
    pub fn lacks(&self, open: &Open) -> Option<bool> {
        #[cfg(test)]
        comparisons::count();
        if self.open.as_ref().is_some_and(|own| own.is_same_place(open)) {
            return Some(false);
        }
        let of = |group: &&GroupState| {
            group.backend == open.backend && (open.group.is_none() || group.id == open.group)
        };
        match self.state.groups.iter().find(of) {
            Some(group) => match group.entered > open.operation.number {
                false => Some(true),
                // Without groups, counts of operations in different groups can't be compared.
                true if open.group.is_none() => None,
                true => Some(false),
            },
            // A rank that isn't known to be in the group may be in none, or may not have made it.
            None if open.group.is_some() => None,
            None => Some(true),
        }
    }
}

impl Open {
    fn of(group: &GroupState, operation: Operation) -> Open {
        let (backend, size) = (group.backend, group.size);
        Open { backend, group: group.id.clone(), size, operation, is_certain: true }
    }

    /// Returns the operation that a rank has entered last, which may be over.
    pub fn last(state: &RankState) -> Option<Open> {
        let last = state.groups.iter().filter_map(|group| Some((group, group.recent.last()?)));
        let (group, operation) = last.min_by_key(|(_, operation)| operation.age_ns)?;
        Some(Open::of(group, operation.clone()))
    }

    /// Returns the place in its group's order.
    pub fn place(&self) -> Place {
        (self.backend, self.group.clone(), self.operation.number)
    }

    /// Whether both are at the same place in the order of the same group.
    pub fn is_same_place(&self, other: &Open) -> bool {
        #[cfg(test)]
        comparisons::count();
        (self.backend, &self.group) == (other.backend, &other.group)
            && self.operation.number == other.operation.number
    }
}

fn open_of(state: &RankState) -> Option<Open> {
    let of = |backend: Backend| state.groups.iter().filter(move |group| group.backend == backend);
    // PyTorch's ranges tell when an operation begins and ends.
    let ranges = of(Backend::Torch).flat_map(|group| group.recent.iter().map(move |o| (group, o)));
    let oldest = ranges.filter(|(_, operation)| !operation.is_over).max_by_key(|(_, o)| o.age_ns);
    if let Some((group, operation)) = oldest {
        return Some(Open::of(group, operation.clone()));
    }
    // A call of MPI is recorded when it returns.
    if let Some((call, age_ns)) = state.mpi_call() {
        let group = of(Backend::Mpi).next().cloned();
        let group = group.unwrap_or(GroupState { backend: Backend::Mpi, ..GroupState::default() });
        let age_ns = age_ns.or_else(|| Some(group.recent.last()?.age_ns)).unwrap_or(0);
        let (number, name) = (group.entered, call.to_owned());
        let operation = Operation { number, name, age_ns, ..Operation::default() };
        return Some(Open::of(&group, operation));
    }
    // NCCL's calls return early: the thread then waits for the device. If the rank does something
    // else, the device may still work on the operation, but nothing waits for that.
    let awaits = state.awaits_device();
    if awaits == Some(false) {
        return None;
    }
    let last = of(Backend::Nccl).filter_map(|group| Some((group, group.recent.last()?)));
    let (group, operation) = last.min_by_key(|(_, operation)| operation.age_ns)?;
    Some(Open { is_certain: awaits.is_some(), ..Open::of(group, operation.clone()) })
}

fn goes_on(state: &RankState, is_in_operation: bool, limit_ns: u64) -> bool {
    if state.end.is_some() || state.is_stopped() {
        return false;
    }
    if state.dump.is_some() {
        return state.goes_on;
    }
    let is_recent = state.quiet_ns().is_some_and(|quiet_ns| quiet_ns < limit_ns);
    // Waiting for other ranks may take CPU time too.
    let is_busy = state.cpu_share.is_some_and(|share| share >= BUSY_SHARE)
        && state.driving().is_some_and(|thread| thread.state == 'R' || thread.wait.is_none())
        || state.transferred_bytes.is_some_and(|bytes| bytes >= MUCH_BYTES);
    let launches = state.launch.as_ref().is_some_and(|launch| launch.age_ns < limit_ns);
    state.goes_on || is_recent || launches || is_busy && !is_in_operation
}

/// Counts how often a rank is compared with an operation of another, for the test of how that grows
/// with the number of ranks.
#[cfg(test)]
pub mod comparisons {
    use std::cell::Cell;

    thread_local!(static MADE: Cell<u64> = const { Cell::new(0) });

    pub fn count() {
        MADE.set(MADE.get() + 1);
    }

    /// Returns the number of comparisons that `body` makes.
    pub fn of(body: impl FnOnce()) -> u64 {
        let before = MADE.get();
        body();
        MADE.get() - before
    }
}
