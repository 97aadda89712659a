//! Finds which ranks come late to collectives.
//!
//! A collective's kernel waits on its device for the last rank, and then all ranks' kernels end at
//! about the same time. So the duration of a rank's kernel is its wait plus the time of the
//! transfer, and the rank with the shortest kernel came last. The comparison uses only durations,
//! so it works for hosts whose clocks differ. The same is true for a collective on the host.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};
use tprof_rank::collectives::{Operation, waits_for_all};
use tprof_rank::{RankTrace, Step, step_at};

/// Maximum number of a rank's collectives that are kept for comparison. Of more collectives, only a
/// sample is kept. A hash of their identities chooses the sample, so that all ranks keep the same
/// collectives.
const MOST_KEPT: usize = 2048;

/// The identity of a collective, equal on all of its ranks: a hash of its communicator, operation,
/// size and sequence number. If the collective has no sequence number, the hash includes its step
/// and its place in that step instead.
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
        let to_compared = |(operation, name): (&Operation, CollectiveName)| ComparedCollective {
            collective_id: name.collective_id,
            added_ns: operation.added_ns,
            step: name.step,
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
    let mut all = Vec::new();
    for operation in operations.iter().filter(|operation| waits_for_all(&operation.name)) {
        let work = operation.work.map(|at| at as usize);
        let step = match work {
            Some(at) => steps_of_work.get(at).copied().flatten(),
            None => step_at(steps, operation.process, operation.start_ns),
        };
        let step = step.map(|at| steps[at as usize].number);
        // The kernels of a stream have the same order on all ranks, but the number of the stream
        // may differ between ranks. So the kernel's name distinguishes the collectives instead of
        // the stream.
        let name = work.map(|at| rank.name(rank.work[at].name));
        let unnamed = name.filter(|_| operation.communicator.is_none());
        let kind = hash(&(operation.communicator, &operation.name, operation.bytes, unnamed));
        let (collective_id, occurrence) = match (operation.communicator, operation.sequence) {
            (Some(_), Some(number)) => (hash(&(kind, number, 0_u8)), number),
            _ => {
                let place = places.entry(hash(&(kind, step))).or_default();
                *place += 1;
                (hash(&(kind, step, *place, 1_u8)), *place)
            }
        };
        all.push((operation, CollectiveName { collective_id, occurrence, step }));
    }
    all
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    of.hash(&mut hasher);
    // The low bits choose the sample, but FxHash mixes them poorly. So mix the hash again.
    let hash = hasher.finish();
    (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(27)
}

/// When a rank arrived at the collectives that it shared with other ranks, relative to those ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Number of collectives that were compared.
    pub met: u64,
    /// Number of collectives to which the rank came last.
    pub last: u64,
    /// Sum of the times by which the rank came after the first rank, ns.
    pub late_ns: u64,
    /// Sum of the times for which the rank waited for the last rank, ns.
    pub waited_ns: u64,
    /// Time by which the rank came after the second-last rank, ns; summed over the collectives to
    /// which the rank came last. This is the gain if the rank had come together with the
    /// second-last one.
    pub delay_ns: u64,
}

impl Arrival {
    /// Returns the mean time by which the rank came after the first rank, ns.
    pub fn mean_late_ns(&self) -> Option<u64> {
        self.late_ns.checked_div(self.met)
    }
}

/// Computes the arrivals of each rank. Collectives that the sample left out, or that only one rank
/// recorded, aren't compared.
pub fn arrivals(ranks: &[&ComparedCollectives]) -> Vec<Arrival> {
    let mut arrivals = vec![Arrival::default(); ranks.len()];
    for_each_meeting(ranks, |meeting| {
        let [(shortest, last), .., (longest, _)] = meeting else { return };
        for (met, rank) in meeting {
            let arrival = &mut arrivals[*rank as usize];
            arrival.met += 1;
            arrival.late_ns += longest.added_ns - met.added_ns;
            arrival.waited_ns += met.added_ns - shortest.added_ns;
        }
        let second = meeting[1].0.added_ns;
        let arrival = &mut arrivals[*last as usize];
        arrival.delay_ns += second - shortest.added_ns;
        arrival.last += u64::from(second > shortest.added_ns);
    });
    arrivals
}

/// Returns for each rank and each of its steps the number of compared collectives, and the sum of
/// the times by which the rank came after the first rank, ns.
pub fn lateness_by_step(ranks: &[&ComparedCollectives]) -> Vec<BTreeMap<u64, (u64, u64)>> {
    let mut late = vec![BTreeMap::new(); ranks.len()];
    for_each_meeting(ranks, |meeting| {
        let Some((longest, _)) = meeting.last() else { return };
        for (met, rank) in meeting {
            let Some(step) = met.step else { continue };
            let (count, late_ns) = late[*rank as usize].entry(step).or_default();
            *count += 1;
            *late_ns += longest.added_ns - met.added_ns;
        }
    });
    late
}

/// Calls `each` for every collective that at least two ranks recorded. Its argument contains one
/// row for each rank, in order of duration. So the rank that came last is first.
fn for_each_meeting(
    ranks: &[&ComparedCollectives],
    mut each: impl FnMut(&[(ComparedCollective, u32)]),
) {
    let stride = ranks.iter().map(|rank| rank.stride).max().unwrap_or(1);
    let mut rows: Vec<(ComparedCollective, u32)> = Vec::new();
    for (rank, compared) in (0..).zip(ranks) {
        let kept = compared.kept.iter().filter(|met| met.collective_id % stride == 0);
        rows.extend(kept.map(|&met| (met, rank)));
    }
    rows.sort_by_key(|(met, rank)| (met.collective_id, met.added_ns, *rank));
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compared(times: &[(CollectiveId, u64)]) -> ComparedCollectives {
        let to_compared = |&(collective_id, added_ns)| ComparedCollective {
            collective_id,
            added_ns,
            step: Some(collective_id / 2),
        };
        ComparedCollectives {
            kept: times.iter().map(to_compared).collect(),
            stride: 1,
            seen: times.len() as u64,
        }
    }

    #[test]
    fn lateness_is_summed_by_each_ranks_own_steps() {
        let mut ranks =
            [compared(&[(2, 100), (3, 50), (4, 7)]), compared(&[(2, 20), (3, 90), (4, 9)])];
        ranks[1].kept[2].step = None;
        let late = lateness_by_step(&ranks.iter().collect::<Vec<_>>());
        assert_eq!(late[0], BTreeMap::from([(1, (2, 40)), (2, (1, 2))]));
        assert_eq!(late[1], BTreeMap::from([(1, (2, 80))]));
    }

    #[test]
    fn the_rank_whose_kernel_is_shortest_came_last() {
        let ranks = [
            compared(&[(1, 100), (2, 50), (3, 7)]),
            compared(&[(1, 20), (2, 50)]),
            compared(&[(1, 70), (2, 90)]),
        ];
        let found = arrivals(&ranks.iter().collect::<Vec<_>>());
        // Two ranks came last together to the second collective. Only one rank recorded the third.
        let arrival = |met, last, late_ns, waited_ns, delay_ns| Arrival {
            met,
            last,
            late_ns,
            waited_ns,
            delay_ns,
        };
        assert_eq!(found[0], arrival(2, 0, 40, 80, 0));
        assert_eq!(found[1], arrival(2, 1, 80 + 40, 0, 50));
        assert_eq!(found[2], arrival(2, 0, 30, 50 + 40, 0));
    }

    #[test]
    fn ranks_with_different_strides_compare_the_shared_collectives() {
        let mut one = compared(&[(2, 10), (4, 10), (6, 10), (8, 10)]);
        let mut two = compared(&[(4, 30), (8, 30)]);
        (one.stride, two.stride) = (2, 4);
        let found = arrivals(&[&one, &two]);
        assert_eq!((found[0].met, found[0].delay_ns), (2, 40));
    }

    proptest! {
        #[test]
        fn late_and_waited_sum_to_the_time_between_first_and_last(
            times in prop::collection::vec(prop::collection::vec(1_u64..100, 6), 2..5),
            turn in 0_usize..5,
        ) {
            let ranks: Vec<ComparedCollectives> = times
                .iter()
                .map(|times| compared(&(0..).zip(times.iter().copied()).collect::<Vec<_>>()))
                .collect();
            let found = arrivals(&ranks.iter().collect::<Vec<_>>());
            let apart: u64 = (0..6)
                .map(|at| {
                    let all = || times.iter().map(|rank| rank[at]);
                    all().max().unwrap() - all().min().unwrap()
                })
                .sum();
            for arrival in &found {
                prop_assert_eq!(arrival.late_ns + arrival.waited_ns, apart);
            }
            // The order of the ranks must change only the order of the rows.
            let turn = turn % ranks.len();
            let mut turned = ranks.clone();
            turned.rotate_left(turn);
            let mut expected = found.clone();
            expected.rotate_left(turn);
            let found = arrivals(&turned.iter().collect::<Vec<_>>());
            let sums = |all: &[Arrival]| all.iter().map(|a| (a.late_ns, a.waited_ns)).collect::<Vec<_>>();
            prop_assert_eq!(sums(&found), sums(&expected));
        }
    }
}
