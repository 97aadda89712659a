//! Replays of small jobs whose times are known.

use super::*;

const MS: u64 = 1_000_000;
const TRANSFER_NS: u64 = 100_000;

/// A rank in which each step has these times before its meetings, and waits in them for the ranks
/// that need longer. `waits` are the waits, transfers left out.
fn rank(steps: u64, before: &[u64], waits: &[u64]) -> RankSteps {
    let mut meetings = Vec::new();
    for step in 0..steps {
        for (place, (before_ns, wait_ns)) in before.iter().zip(waits).enumerate() {
            let last: Option<&StepMeeting> = meetings.last();
            let since_entry_ns = last.map_or(0, |last| last.duration_ns + before_ns);
            meetings.push(StepMeeting {
                id: Some(step * 10 + place as u64),
                step,
                place: place as u32,
                before_ns: *before_ns,
                since_entry_ns,
                duration_ns: wait_ns + TRANSFER_NS,
                ..StepMeeting::default()
            });
        }
    }
    let place = |at: usize| {
        let of = |operator: String| OwnPlace { operator, ..OwnPlace::default() };
        vec![(of("any".to_owned()), 9 * MS), (of(format!("operator {at}")), before[at])]
    };
    let places = (0..before.len()).map(place).collect();
    RankSteps { meetings, places, stride: 1, ..RankSteps::default() }
}

/// Three ranks: the second needs 5 ms longer before its second meeting.
fn late_second() -> [RankSteps; 3] {
    let (first, second) = (3 * MS, 10 * MS);
    let on_time = rank(20, &[first, second], &[0, 5 * MS]);
    let late = rank(20, &[first, second + 5 * MS], &[0, 0]);
    [on_time.clone(), late, on_time]
}

#[test]
fn the_longest_stretch_decides_each_step_and_is_named() {
    let ranks = late_second();
    let ranks: Vec<&RankSteps> = ranks.iter().collect();
    let decided = decided_steps(&JobGraph::of(&ranks)).unwrap();
    assert_eq!(decided.steps, 19);
    assert_eq!(decided.total_ns, 19 * (18 * MS + 2 * TRANSFER_NS));
    assert_eq!(decided.transfer_ns, 19 * 2 * TRANSFER_NS);
    let [one] = &decided.stretches[..] else { panic!("{decided:?}") };
    assert_eq!((one.rank, one.steps), (1, 19));
    assert_eq!((one.own_ns, one.longer_ns), (19 * 15 * MS, 19 * 5 * MS));
    assert_eq!(one.place.as_ref().unwrap().shown(), "operator 1");
}

#[test]
fn without_the_late_rank_a_step_takes_what_the_others_need() {
    let ranks = late_second();
    let ranks: Vec<&RankSteps> = ranks.iter().collect();
    let graph = JobGraph::of(&ranks);
    let found = what_if(&graph, 1).unwrap();
    assert_eq!(found.step_ns, (18 * MS + 2 * TRANSFER_NS) as f64);
    assert_eq!(found.without_ns, (13 * MS + 2 * TRANSFER_NS) as f64);
    assert!(found.error_ns < 1.0, "{found:?}");
    let other = what_if(&graph, 0).unwrap();
    assert_eq!(other.without_ns, other.step_ns, "a rank that waits decides nothing");
}

#[test]
fn time_without_a_core_makes_a_prediction_uncertain() {
    let mut ranks = late_second();
    ranks[1].no_core_share = Some(0.1);
    let ranks: Vec<&RankSteps> = ranks.iter().collect();
    let found = what_if(&JobGraph::of(&ranks), 1).unwrap();
    assert!((found.error_ns - 0.1 * found.step_ns).abs() < 1.0, "{found:?}");
}

#[test]
fn lateness_that_another_rank_hides_gains_only_the_rest() {
    // The first rank is late by 5 ms and the second by 4 ms, before the same meeting.
    let ranks = [
        rank(20, &[15 * MS], &[0]),
        rank(20, &[14 * MS], &[MS]),
        rank(20, &[10 * MS], &[5 * MS]),
        rank(20, &[10 * MS], &[5 * MS]),
    ];
    let ranks: Vec<&RankSteps> = ranks.iter().collect();
    let found = what_if(&JobGraph::of(&ranks), 0).unwrap();
    assert_eq!(found.step_ns - found.without_ns, MS as f64);
}

#[test]
fn a_meeting_that_computing_hides_gains_nothing() {
    // The second rank is late by 5 ms, but meanwhile the first computes for 5 ms, on which alone
    // what follows depends.
    let mut ranks =
        [rank(20, &[3 * MS, 2 * MS], &[5 * MS, 0]), rank(20, &[8 * MS, 2 * MS], &[0, 0])];
    for meeting in ranks[0].meetings.iter_mut().filter(|of| of.place == 0) {
        meeting.hidden_ns = 5 * MS + TRANSFER_NS;
    }
    let ranks: Vec<&RankSteps> = ranks.iter().collect();
    let found = what_if(&JobGraph::of(&ranks), 1).unwrap();
    assert_eq!(found.without_ns, found.step_ns);
}

#[test]
fn meetings_of_groups_that_overlap_do_not_block_each_other() {
    // Both ranks are in two meetings at once, and enter them in different order.
    let both = |first: u64| {
        let mut meetings = Vec::new();
        for step in 0..10 {
            for place in 0..2_u32 {
                meetings.push(StepMeeting {
                    id: Some(step * 10 + (first + u64::from(place)) % 2),
                    step,
                    place,
                    before_ns: if place == 0 { MS } else { 0 },
                    since_entry_ns: if place == 0 { 2 * MS } else { 1000 },
                    duration_ns: MS,
                    overlaps: place == 1,
                    ..StepMeeting::default()
                });
            }
        }
        RankSteps { meetings, stride: 1, ..RankSteps::default() }
    };
    let ranks = [both(0), both(1)];
    let ranks: Vec<&RankSteps> = ranks.iter().collect();
    let decided = decided_steps(&JobGraph::of(&ranks)).unwrap();
    assert_eq!((decided.steps, decided.total_ns), (9, 9 * (2 * MS + 1000)));
}

#[test]
fn meetings_without_a_common_order_are_not_replayed() {
    let one = rank(3, &[MS, MS], &[0, 0]);
    let mut other = one.clone();
    for pair in other.meetings.chunks_mut(2) {
        let ids = [pair[1].id, pair[0].id];
        (pair[0].id, pair[1].id) = (ids[0], ids[1]);
    }
    assert_eq!(decided_steps(&JobGraph::of(&[&one, &other])), None);
}

#[test]
fn ranks_that_keep_other_blocks_share_those_that_both_keep() {
    let mut ranks = late_second();
    let fewer = 2;
    ranks[2].meetings.retain(|of| is_kept(of.step, fewer));
    ranks[2].stride = fewer;
    let ranks: Vec<&RankSteps> = ranks.iter().collect();
    let decided = decided_steps(&JobGraph::of(&ranks)).unwrap();
    // Steps 0 to 7 and 16 to 19 are kept, and the first of each is only the start.
    assert_eq!((decided.steps, decided.stretches[0].steps), (7 + 3, 10));
}

#[test]
fn ranks_whose_steps_begin_with_another_meeting_are_replayed_by_the_first_ranks_steps() {
    let (first, second) = (3 * MS, 10 * MS);
    let on_time = rank(20, &[first, second], &[0, 5 * MS]);
    let mut late = rank(20, &[first, second + 5 * MS], &[0, 0]);
    for (at, meeting) in late.meetings.iter_mut().enumerate() {
        (meeting.step, meeting.place) = ((at as u64).div_ceil(2), (at as u32 + 1) % 2);
    }
    late.places.swap(0, 1);
    let decided = decided_steps(&JobGraph::of(&[&on_time, &late])).unwrap();
    assert_eq!((decided.steps, decided.total_ns), (19, 19 * (18 * MS + 2 * TRANSFER_NS)));
    let one = &decided.stretches[0];
    assert_eq!((one.rank, one.longer_ns), (1, 19 * 5 * MS));
    assert_eq!(one.place.as_ref().unwrap().shown(), "operator 1");
}
