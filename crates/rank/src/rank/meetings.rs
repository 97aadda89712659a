//! Matches the collectives of a rank with those of other ranks: operations in which all ranks that
//! take part wait for each other.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};
use tprof_facts::cycles;

use super::collectives::{Operation, waits_for_all};
use super::roles::Role;
use super::step::{Step, step_at};
use super::trace::RankTrace;

/// Maximum number of a rank's collectives that are kept for comparison. Of more collectives, only a
/// sample is kept. A hash of their identities chooses the sample, so that all ranks keep the same
/// collectives.
const MOST_KEPT: usize = 2048;

/// The identity of a collective, equal on all of its ranks: a hash of its communicator, operation,
/// size (except that of an all_to_all, which may differ) and sequence number. If the collective has no sequence number, the hash includes its step
/// and its place in that step instead. Inferred steps may begin with another operation on each rank,
/// so a rank that was recorded from its beginning counts places over all of them.
pub type CollectiveId = u64;

/// A collective of a rank, ordered by the identity on which all ranks agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComparedCollective {
    /// The collective, as all its ranks identify it.
    pub collective_id: CollectiveId,
    /// Duration of the rank's kernel, or of the collective on the host without the part that
    /// earlier collectives cover, ns.
    pub added_ns: u64,
    /// Number of the rank's step; `None` outside of steps.
    pub step: Option<u64>,
    /// What the ranks that take part divide among themselves.
    pub role: Role,
    /// The time on the clock of the rank's file at which the rank entered the collective, ns.
    pub start_ns: u64,
    /// Time from the rank's entry to its end of the collective, ns.
    pub duration_ns: u64,
    /// Whether the collective bounds how far the clocks of its ranks are apart: no rank can leave
    /// it before all have entered it, and its identity is certain.
    pub bounds_clocks: bool,
}

/// The collectives of one rank that are compared with those of other ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComparedCollectives {
    /// The collectives that are compared.
    pub kept: Vec<ComparedCollective>,
    /// The rank keeps one in `stride` of its collectives; a power of two.
    pub stride: u64,
    /// Number of the rank's collectives that make all ranks wait for each other, kept or not.
    pub seen: u64,
}

impl ComparedCollectives {
    /// Identifies the operations of a rank for which `counts` returns true. `steps_of_work`
    /// contains the step of each piece of work.
    pub fn of(
        rank: &RankTrace,
        operations: &[Operation],
        steps: &[Step],
        steps_of_work: &[Option<u32>],
        counts: impl Fn(&Operation) -> bool,
    ) -> ComparedCollectives {
        let named = named(rank, operations, steps, steps_of_work);
        // Occurrences are counted over all operations before `counts` filters them, so that all
        // ranks count alike.
        let counted = named.into_iter().filter(|(operation, _)| counts(operation));
        let certain = Certainty::of(rank);
        let to_compared = |(operation, name): (&Operation, CollectiveName)| ComparedCollective {
            collective_id: name.collective_id,
            added_ns: operation.added_ns,
            step: name.step,
            role: operation.role,
            start_ns: operation.start_ns,
            duration_ns: operation.duration_ns,
            bounds_clocks: certain.bounds_clocks(operation, name.step),
        };
        let mut all: Vec<ComparedCollective> = counted.map(to_compared).collect();
        let seen = all.len() as u64;
        let mut stride = 1;
        while all.len() > MOST_KEPT {
            stride *= 2;
            all.retain(|met| met.collective_id % stride == 0);
        }
        all.sort_unstable();
        ComparedCollectives { kept: all, stride, seen }
    }
}

/// Tells whether it is certain which collectives of other ranks a rank's collectives are.
pub(super) struct Certainty {
    /// Number of ranks of the job.
    world_size: Option<u32>,
    /// Whether all ranks number a step alike.
    steps_are_numbered: bool,
    /// Whether the rank was recorded from its beginning, so that all ranks count alike.
    is_whole: bool,
}

impl Certainty {
    pub fn of(rank: &RankTrace) -> Certainty {
        let is_imported = rank.file.header().host.is_empty();
        Certainty {
            world_size: rank.world_size,
            steps_are_numbered: !rank.has_inferred_steps(),
            is_whole: !is_imported && cycles::paused(rank.file).is_empty(),
        }
    }

    /// Whether operations without a number are counted in each step anew, and not over all of them.
    pub fn is_counted_by_step(&self) -> bool {
        self.steps_are_numbered || !self.is_whole
    }

    /// Without a communicator, equal collectives of different groups may have the same identity,
    /// unless all ranks take part. An uneven all_to_all need not wait for ranks that send nothing.
    fn bounds_clocks(&self, operation: &Operation, step: Option<u64>) -> bool {
        let has_all_ranks =
            operation.group_size.is_some() && operation.group_size == self.world_size;
        let is_of_known_group = operation.communicator.is_some() || has_all_ranks;
        let is_numbered = operation.communicator.is_some() && operation.sequence.is_some();
        let is_placed = self.is_whole || self.steps_are_numbered && step.is_some();
        let is_even = !operation.name.contains("all_to_all");
        is_of_known_group && is_even && (is_numbered || is_placed)
    }
}

/// The name by which ranks match a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectiveName {
    /// The identity of the collective, equal in all ranks that took part.
    pub collective_id: CollectiveId,
    /// The sequence number of the collective on its communicator. Without one, its place, from 1,
    /// among the equal collectives of its step.
    pub occurrence: u64,
    /// Number of the rank's step; `None` outside of steps.
    pub step: Option<u64>,
}

/// Returns the operations that make all ranks wait for each other, in order, each with its name.
pub fn named<'o>(
    rank: &RankTrace,
    operations: &'o [Operation],
    steps: &[Step],
    steps_of_work: &[Option<u32>],
) -> Vec<(&'o Operation, CollectiveName)> {
    let mut places: FxHashMap<u64, u64> = FxHashMap::default();
    let is_counted_by_step = Certainty::of(rank).is_counted_by_step();
    let mut all = Vec::new();
    for operation in operations.iter().filter(|operation| waits_for_all(&operation.name)) {
        let work = operation.work.map(|at| at as usize);
        let step = step_of(operation, steps, steps_of_work);
        // The kernels of a stream have the same order on all ranks, but the number of the stream
        // may differ between ranks. So the kernel's name distinguishes the collectives instead of
        // the stream.
        let name = work.map(|at| rank.name(rank.work[at].name));
        let unnamed = name.filter(|_| operation.communicator.is_none());
        // Each rank of an all_to_all may exchange another number of bytes.
        let bytes = operation.bytes.filter(|_| !operation.name.contains("all_to_all"));
        let kind = hash(&(operation.communicator, &operation.name, bytes, unnamed));
        let (collective_id, occurrence) = match (operation.communicator, operation.sequence) {
            (Some(_), Some(number)) => (hash(&(kind, number, 0_u8)), number),
            _ => {
                let counted_in = step.filter(|_| is_counted_by_step);
                let place = places.entry(hash(&(kind, counted_in))).or_default();
                *place += 1;
                (hash(&(kind, counted_in, *place, 1_u8)), *place)
            }
        };
        all.push((operation, CollectiveName { collective_id, occurrence, step }));
    }
    all
}

/// Returns the number of the step of an operation. `steps_of_work` has the step of each piece of
/// work.
pub fn step_of(
    operation: &Operation,
    steps: &[Step],
    steps_of_work: &[Option<u32>],
) -> Option<u64> {
    let step = match operation.work {
        Some(at) => steps_of_work.get(at as usize).copied().flatten(),
        None => step_at(steps, operation.process, operation.start_ns),
    };
    step.map(|at| steps[at as usize].number)
}

pub(super) fn hash(of: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    of.hash(&mut hasher);
    // The low bits choose the sample, but FxHash mixes them poorly. So mix the hash again.
    let hash = hasher.finish();
    (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(27)
}

/// Calls `each` for every collective that at least two ranks recorded. Its argument contains one
/// row for each rank, in order of duration. So the rank that came last is first.
pub fn for_each_meeting(
    ranks: &[&ComparedCollectives],
    mut each: impl FnMut(&[(ComparedCollective, u32)]),
) {
    let stride = ranks.iter().map(|rank| rank.stride).max().unwrap_or(1);
    let mut rows: Vec<(ComparedCollective, u32)> = Vec::new();
    for (rank, compared) in (0..).zip(ranks) {
        let kept = compared.kept.iter().filter(|met| met.collective_id % stride == 0);
        rows.extend(kept.map(|&met| (met, rank)));
    }
    rows.sort_unstable_by_key(|(met, rank)| (met.collective_id, met.added_ns, *rank));
    for meeting in rows.chunk_by(|a, b| a.0.collective_id == b.0.collective_id) {
        // If a rank appears twice, two different collectives have the same identity, and can't be
        // compared.
        let mut rank_numbers: Vec<u32> = meeting.iter().map(|row| row.1).collect();
        rank_numbers.sort_unstable();
        if meeting.len() > 1 && rank_numbers.windows(2).all(|pair| pair[0] != pair[1]) {
            each(meeting);
        }
    }
}
