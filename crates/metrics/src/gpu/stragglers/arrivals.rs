//! Finds which ranks come late to collectives.
//!
//! A collective's kernel waits on its device for the last rank, and then all ranks' kernels end at
//! about the same time. So the duration of a rank's kernel is its wait plus the time of the
//! transfer, and the rank with the shortest kernel came last. The comparison uses only durations,
//! so it works for hosts whose clocks differ. The same is true for a collective on the host.

use std::collections::BTreeMap;
use std::iter::Sum;

use tprof_rank::meetings::{ComparedCollectives, for_each_meeting};
use tprof_rank::roles::Role;

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

impl<'a> Sum<&'a Arrival> for Arrival {
    fn sum<I: Iterator<Item = &'a Arrival>>(all: I) -> Arrival {
        all.fold(Arrival::default(), |sum, one| Arrival {
            met: sum.met + one.met,
            last: sum.last + one.last,
            late_ns: sum.late_ns + one.late_ns,
            waited_ns: sum.waited_ns + one.waited_ns,
            delay_ns: sum.delay_ns + one.delay_ns,
        })
    }
}

/// Computes the arrivals of each rank. Collectives that the sample left out, or that only one rank
/// recorded, aren't compared.
pub fn arrivals(ranks: &[&ComparedCollectives]) -> Vec<Arrival> {
    arrivals_by_role(ranks).iter().map(|roles| roles.values().sum()).collect()
}

/// Computes the arrivals of each rank as [`arrivals`] does, by the role of the collectives' groups.
pub fn arrivals_by_role(ranks: &[&ComparedCollectives]) -> Vec<BTreeMap<Role, Arrival>> {
    let mut arrivals = vec![BTreeMap::<Role, Arrival>::new(); ranks.len()];
    for_each_meeting(ranks, |meeting| {
        let [(shortest, last), .., (longest, _)] = meeting else { return };
        // A communicator has the same name on all of its ranks.
        let role = shortest.role;
        for (met, rank) in meeting {
            let arrival = arrivals[*rank as usize].entry(role).or_default();
            arrival.met += 1;
            arrival.late_ns += longest.added_ns - met.added_ns;
            arrival.waited_ns += met.added_ns - shortest.added_ns;
        }
        let second = meeting[1].0.added_ns;
        let arrival = arrivals[*last as usize].entry(role).or_default();
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tprof_rank::meetings::{CollectiveId, ComparedCollective};

    fn compared(times: &[(CollectiveId, u64)]) -> ComparedCollectives {
        let to_compared = |&(collective_id, added_ns)| ComparedCollective {
            collective_id,
            added_ns,
            step: Some(collective_id / 2),
            role: Role::Unknown,
            start_ns: 0,
            duration_ns: added_ns,
            bounds_clocks: true,
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
    fn lateness_is_split_by_the_roles_of_groups() {
        let mut ranks = [compared(&[(1, 100), (2, 50)]), compared(&[(1, 20), (2, 90)])];
        for rank in &mut ranks {
            rank.kept[0].role = Role::Tensor;
        }
        let found = arrivals_by_role(&ranks.iter().collect::<Vec<_>>());
        let late = |rank: usize, role| found[rank][&role].delay_ns;
        assert_eq!((late(1, Role::Tensor), late(0, Role::Unknown)), (80, 40));
        assert_eq!((late(0, Role::Tensor), late(1, Role::Unknown)), (0, 0));
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
