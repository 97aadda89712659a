//! Simulated ranks with known offsets and drifts.

use tprof_fixture::random::Random;

use super::*;
use crate::roles::Role;

const JITTER_NS: u64 = 1_000_000;
const TRANSFER_NS: u64 = 20_000;

/// A host's clock: its offset and drift from the true time.
#[derive(Clone, Copy)]
struct TrueClock {
    offset_ns: i64,
    drift_ppb: i64,
}

impl TrueClock {
    fn shows(self, true_ns: i64) -> i64 {
        true_ns
            + self.offset_ns
            + (i128::from(true_ns) * i128::from(self.drift_ppb) / 1_000_000_000) as i64
    }
}

/// Simulates collectives, one in each interval: ranks enter within 1 ms of each other, and leave
/// after the last has entered, each a little later. `groups` are the ranks that take part in turn.
fn simulate(
    clocks: &[TrueClock],
    ranks_each: usize,
    groups: &[&[usize]],
    count: u64,
    every_ns: u64,
) -> Vec<ComparedCollectives> {
    let mut random = Random(7);
    let mut ranks =
        vec![ComparedCollectives { stride: 1, ..Default::default() }; clocks.len() * ranks_each];
    for number in 0..count {
        let group = groups[number as usize % groups.len()];
        let entries: Vec<u64> =
            group.iter().map(|_| (number + 1) * every_ns + random.below(JITTER_NS)).collect();
        let last_ns = entries.iter().max().unwrap();
        for (rank, entry_ns) in group.iter().zip(&entries) {
            let end_ns = last_ns + TRANSFER_NS + random.below(TRANSFER_NS);
            let clock = clocks[rank / ranks_each];
            // File times are unsigned, and a real host's clock has been running for a while.
            let shows = |ns: u64| (clock.shows(ns as i64) + (1 << 40)) as u64;
            ranks[*rank].kept.push(ComparedCollective {
                collective_id: number,
                added_ns: end_ns - entry_ns,
                step: None,
                role: Role::Unknown,
                start_ns: shows(*entry_ns),
                duration_ns: shows(end_ns) - shows(*entry_ns),
                bounds_clocks: true,
            });
        }
    }
    ranks
}

fn related(ranks: &[ComparedCollectives], ranks_each: usize) -> Vec<RelatedClock> {
    let clock = Clock { start_ns: 1 << 40, ..Clock::default() };
    let times = ranks.iter().enumerate().map(|(rank, compared)| RankTimes {
        name: ClockName::Host(format!("host-{}", rank / ranks_each)),
        clock,
        compared,
    });
    relate(&times.collect::<Vec<_>>())
}

/// Asserts that each clock's corrected times are those of the first clock, within the error that is
/// stated and within 50 us, at all times of the run.
fn assert_aligned(clocks: &[TrueClock], found: &[RelatedClock], length_ns: u64) {
    assert_eq!(found.len(), clocks.len());
    for (clock, found) in clocks.iter().zip(found) {
        let line = found.line.unwrap_or_else(|why| panic!("{}: {why}", found.name.text()));
        assert!(line.error_ns < 50_000, "{found:?}");
        for part in 0..=100 {
            let true_ns = (length_ns / 100 * part) as i64;
            let off = line.line.corrected(clock.shows(true_ns)) - clocks[0].shows(true_ns);
            assert!(off.unsigned_abs() <= line.error_ns + 1, "{off} ns at {part} %: {found:?}");
        }
    }
}

const CLOCKS: [TrueClock; 4] = [
    TrueClock { offset_ns: 0, drift_ppb: 0 },
    TrueClock { offset_ns: 35_000_000, drift_ppb: 40_000 },
    TrueClock { offset_ns: -2_500_000_000, drift_ppb: -60_000 },
    TrueClock { offset_ns: 700, drift_ppb: 12 },
];
const ALL: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

#[test]
fn offsets_and_drifts_of_hours_are_found_within_50_us_at_1_ms_of_jitter() {
    let (count, every_ns) = (2_000, 5_000_000_000);
    let ranks = simulate(&CLOCKS, 2, &[&ALL], count, every_ns);
    let found = related(&ranks, 2);
    assert_aligned(&CLOCKS, &found, count * every_ns);
    assert!((found[1].line.unwrap().line.drift_ppm() + 40.0).abs() < 0.01, "{found:?}");
}

#[test]
fn a_minute_is_enough() {
    let (count, every_ns) = (2_000, 30_000_000);
    let ranks = simulate(&CLOCKS, 2, &[&ALL], count, every_ns);
    assert_aligned(&CLOCKS, &related(&ranks, 2), count * every_ns);
}

#[test]
fn hosts_that_never_meet_the_first_are_related_through_others() {
    let (count, every_ns) = (4_000, 30_000_000);
    let ranks = simulate(&CLOCKS, 1, &[&[0, 1], &[2, 3], &[1, 2]], count, every_ns);
    let found = related(&ranks, 1);
    let errors: Vec<u64> = found.iter().map(|clock| clock.line.unwrap().error_ns).collect();
    assert!(errors.windows(2).all(|pair| pair[0] < pair[1]), "{errors:?}");
    for (clock, found) in CLOCKS.iter().zip(&found) {
        let line = found.line.unwrap();
        let true_ns = 50_000_000_000;
        let off = line.line.corrected(clock.shows(true_ns)) - true_ns;
        assert!(off.unsigned_abs() <= line.error_ns, "{off} {found:?}");
    }
}

#[test]
fn a_host_that_met_no_other_stays_unknown() {
    let ranks = simulate(&CLOCKS, 1, &[&[0, 1]], 100, 30_000_000);
    let found = related(&ranks, 1);
    assert!(found[1].line.is_ok());
    assert_eq!((found[2].line, found[2].operations), (Err(NOT_MET), 0));
}

#[test]
fn collectives_whose_identity_is_uncertain_are_not_used() {
    let mut ranks = simulate(&CLOCKS, 1, &[&[0, 1, 2, 3]], 100, 30_000_000);
    for met in ranks.iter_mut().flat_map(|rank| &mut rank.kept) {
        met.bounds_clocks = false;
    }
    assert_eq!(related(&ranks, 1)[1].line, Err(NOT_MET));
}

#[test]
fn a_clock_that_was_set_during_the_run_is_contradictory() {
    let mut ranks = simulate(&CLOCKS, 1, &[&[0, 1, 2, 3]], 100, 30_000_000);
    for met in &mut ranks[3].kept[50..] {
        met.start_ns += 40_000_000;
    }
    let found = related(&ranks, 1);
    assert!(found[1].line.is_ok() && found[2].line.is_ok());
    assert_eq!(found[3].line, Err(CONTRADICTORY));
}
