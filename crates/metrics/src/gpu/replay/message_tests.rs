//! Replays of ranks that send and receive, compared with simulations of what they did and of what
//! they would do.

use tprof_fixture::exchanges::{Act, Schedule, Simulated, pipeline, receive, send};

use super::messages::Matched;
use super::simulated::recorded;
use super::*;

const MS: u64 = 1_000_000;
const TRANSFER_NS: u64 = 10_000;
const SCHEDULES: [Schedule; 3] =
    [Schedule::GPipe, Schedule::OneForwardOneBackward, Schedule::Grouped];

/// Calls `check` with the graph of a job.
fn with_graph<T>(steps: &[RankSteps], check: impl FnOnce(&JobGraph<'_>) -> T) -> T {
    let ranks: Vec<&RankSteps> = steps.iter().collect();
    check(&JobGraph::of(&ranks))
}

fn of_job<T>(job: &Simulated, check: impl FnOnce(&JobGraph<'_>) -> T) -> T {
    with_graph(&recorded(job, &[]), check)
}

fn shares(pipeline: &Pipeline) -> Vec<f64> {
    let share = |stage: &Stage| stage.bubble_ns as f64 / stage.steps_ns as f64;
    pipeline.stages.iter().map(share).collect()
}

#[test]
fn bubbles_of_stages_that_need_the_same_time_are_those_of_the_formula() {
    for schedule in SCHEDULES {
        for (stages, microbatches) in [(4, 8), (2, 4), (3, 1), (5, 32)] {
            let job = pipeline(schedule, &vec![(MS, 2 * MS); stages], microbatches);
            let found = of_job(&job, pipelines);
            let [found] = &found[..] else { panic!("{found:?}") };
            assert_eq!(found.microbatches, Some(microbatches as u64), "{schedule:?}");
            let ranks: Vec<usize> = found.stages.iter().map(|of| of.rank).collect();
            assert_eq!(ranks, (0..stages).collect::<Vec<_>>());
            let ideal = (stages - 1) as f64 / (microbatches + stages - 1) as f64;
            assert_eq!(found.ideal(), Some(ideal));
            for share in shares(found) {
                assert!((share - ideal).abs() < 1e-9, "{schedule:?}: {share}, not {ideal}");
            }
            for stage in &found.stages {
                assert_eq!(stage.own_ns, stage.steps * microbatches as u64 * 3 * MS);
            }
        }
    }
}

#[test]
fn stages_are_in_order_of_the_pipeline_and_not_of_the_ranks() {
    let mut job = pipeline(Schedule::GPipe, &[(MS, MS); 3], 4);
    let turned = |rank: &u32| 2 - *rank;
    job.ranks.reverse();
    for act in job.ranks.iter_mut().flatten() {
        if let Act::Exchange { to, from } = act {
            *to = to.iter().map(turned).collect();
            *from = from.iter().map(turned).collect();
        }
    }
    let found = of_job(&job, pipelines);
    let ranks: Vec<usize> = found[0].stages.iter().map(|of| of.rank).collect();
    assert_eq!(ranks, [2, 1, 0]);
}

#[test]
fn the_slow_stage_decides_the_steps_and_balancing_it_gains_what_a_simulation_gains() {
    for schedule in SCHEDULES {
        let balanced = [(2 * MS, 4 * MS); 4];
        let mut uneven = balanced;
        uneven[2] = (3 * MS, 6 * MS);
        let mut job = pipeline(schedule, &uneven, 8);
        job.transfer_ns = TRANSFER_NS;
        let truth = Simulated { transfer_ns: TRANSFER_NS, ..pipeline(schedule, &balanced, 8) };
        let (decided, found, stages) =
            of_job(&job, |graph| (decided_steps(graph), what_if(graph, 2), pipelines(graph)));
        let decided = decided.unwrap();
        let [one] = &decided.stretches[..] else { panic!("{decided:?}") };
        assert_eq!((one.rank, one.steps, decided.steps), (2, 19, 19));
        assert_eq!(one.place.as_ref().unwrap().shown(), "operator of rank 2");
        let found = found.unwrap();
        assert!((found.step_ns - job.step_ns()).abs() < 1.0, "{found:?}");
        let (step_ns, without_ns) = (truth.step_ns(), found.without_ns);
        assert!((without_ns / step_ns - 1.0).abs() < 1e-3, "{without_ns}, in truth {step_ns}");
        let own: Vec<u64> = stages[0].stages.iter().map(|of| of.own_ns / of.steps / 8).collect();
        assert_eq!(own, [6 * MS, 6 * MS, 9 * MS, 6 * MS]);
    }
}

/// Three ranks. The first sends to the second, which computes for so long before each receive; the
/// third has no messages.
fn sender_and_receiver(sends_wait: bool, compute_ns: u64) -> Simulated {
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        sends.extend([Act::Compute(MS), send(1)]);
        receives.extend([Act::Compute(compute_ns), receive(0)]);
    }
    // The first computes for longer than the second after its sends, so that steps take longer if
    // those wait.
    sends.extend([Act::Compute(10 * MS), Act::Meet]);
    receives.push(Act::Meet);
    let ranks = vec![sends, receives, vec![Act::Compute(MS), Act::Meet]];
    Simulated { steps: 100, ranks, sends_wait, transfer_ns: TRANSFER_NS }
}

#[test]
fn whether_sends_wait_is_known_from_the_times_and_tells_what_a_quicker_receiver_gains() {
    for sends_wait in [false, true] {
        let job = sender_and_receiver(sends_wait, 4 * MS);
        let (waits, found) = of_job(&job, |graph| {
            let waits = graph.rows[0].iter().filter(|row| graph.waited_ns(row) > MS).count();
            (waits, what_if(graph, 1).unwrap())
        });
        // All sends of a step wait, but the last meeting is that of the slower rank.
        assert_eq!(waits, if sends_wait { 4 * 100 } else { 100 });
        assert!((found.step_ns - job.step_ns()).abs() < 1.0, "{sends_wait}: {found:?}");
        // The first rank computes for 14 ms in all.
        let truth_ns = sender_and_receiver(sends_wait, 14 * MS / 4).step_ns();
        let apart = (found.without_ns / truth_ns - 1.0).abs();
        assert!(apart < 0.005, "{sends_wait}: {found:?}, in truth {truth_ns}");
    }
}

#[test]
fn ranks_that_exchange_in_a_ring_in_one_operation_do_not_block_each_other() {
    for sends_wait in [false, true] {
        let act = |rank: u32| {
            let exchange = Act::Exchange { to: vec![(rank + 1) % 4], from: vec![(rank + 3) % 4] };
            let compute = Act::Compute(MS * u64::from(1 + rank % 3));
            vec![compute.clone(), exchange.clone(), compute, exchange]
        };
        let ranks = (0..4).map(act).collect();
        let job = Simulated { steps: 20, ranks, sends_wait, transfer_ns: TRANSFER_NS };
        of_job(&job, |graph| {
            let decided = decided_steps(graph).unwrap();
            let step_ns = decided.total_ns as f64 / decided.steps as f64;
            assert!((step_ns / job.step_ns() - 1.0).abs() < 1e-6, "{step_ns} {}", job.step_ns());
            assert_eq!(pipelines(graph), [], "a ring is no pipeline");
        });
    }
}

#[test]
fn clocks_of_other_hosts_change_nothing() {
    let mut stages = [(2 * MS, 4 * MS); 4];
    stages[1] = (3 * MS, 6 * MS);
    let mut job = pipeline(Schedule::OneForwardOneBackward, &stages, 8);
    job.transfer_ns = TRANSFER_NS;
    let clocks = [("a", 0), ("a", 0), ("b", 1 << 60), ("c", 77 * MS)];
    let unknown = [("", 0), ("", 5 * MS), ("", 1 << 60), ("", 77 * MS)];
    let all = |clocks: &[(&str, u64)]| {
        with_graph(&recorded(&job, clocks), |graph| {
            (decided_steps(graph).unwrap(), pipelines(graph).remove(0), graph.is_followed())
        })
    };
    let (decided, pipeline, is_followed) = all(&[]);
    assert!(is_followed && !decided.stretches.is_empty());
    for clocks in [clocks, unknown] {
        let (other, of_others, is_followed) = all(&clocks);
        assert!(is_followed);
        assert_eq!((other.stretches.len(), other.steps), (decided.stretches.len(), decided.steps));
        let apart_ns = other.total_ns.abs_diff(decided.total_ns);
        assert!(apart_ns < decided.total_ns / 1000, "{apart_ns}");
        for (one, other) in shares(&pipeline).into_iter().zip(shares(&of_others)) {
            assert!((one - other).abs() < 0.01, "{one} {other}");
        }
    }
}

#[test]
fn messages_of_which_one_side_is_not_recorded_are_not_followed() {
    let job = pipeline(Schedule::GPipe, &[(5 * MS, 5 * MS), (MS, MS), (MS, MS)], 8);
    assert!(of_job(&job, |graph| graph.is_followed()));
    // Rank 1 receives by a call that is not recorded.
    let mut steps = recorded(&job, &[]);
    steps[1].messages.retain(|of| of.of.message.is_send);
    assert!(!with_graph(&steps, |graph| graph.is_followed()));
    // No rank receives by a call that is recorded.
    let mut steps = recorded(&job, &[]);
    steps.iter_mut().for_each(|of| of.messages.retain(|of| of.of.message.is_send));
    assert!(!with_graph(&steps, |graph| graph.is_followed()));
    // Each second receive of rank 1 is by such a call. The others may be those of earlier sends, for
    // all that times tell.
    let mut steps = recorded(&job, &[]);
    let is_known = |of: &StepMessage| of.of.message.is_send || of.of.number.is_multiple_of(2);
    steps[1].messages.retain(is_known);
    for of in steps[1].messages.iter_mut().filter(|of| !of.of.message.is_send) {
        of.of.number /= 2;
    }
    let is_of_way = |of: &Matched| (of.send.0, of.receive.0) == (0, 1);
    assert!(!with_graph(&steps, |graph| graph.messages.iter().any(is_of_way)));
    // Each fourth send of rank 0 is by such a call, so that the numbers of the others are wrong.
    let mut steps = recorded(&job, &[]);
    steps[0].messages.retain(|of| !of.of.message.is_send || of.of.number % 4 != 0);
    for (number, of) in (0..).zip(steps[0].messages.iter_mut().filter(|of| of.of.message.is_send)) {
        of.of.number = number;
    }
    assert!(!with_graph(&steps, |graph| graph.is_followed()));
}

#[test]
fn messages_that_arrive_before_they_are_sent_are_not_matched() {
    let mut job = pipeline(Schedule::GPipe, &[(5 * MS, 5 * MS), (MS, MS)], 8);
    job.transfer_ns = TRANSFER_NS;
    let mut steps = recorded(&job, &[]);
    for of in steps[1].messages.iter_mut().filter(|of| !of.of.message.is_send) {
        of.of.number = of.of.number.checked_sub(3).unwrap_or(10_000 + of.of.number);
    }
    let (is_followed, messages) =
        with_graph(&steps, |graph| (graph.is_followed(), graph.messages.len()));
    assert!(
        is_followed && messages > 0,
        "a receive may wait for an earlier send, for all it shows"
    );
    for of in steps[1].messages.iter_mut().filter(|of| !of.of.message.is_send) {
        of.of.number = (of.of.number + 6) % 10_000;
    }
    assert!(!with_graph(&steps, |graph| graph.is_followed()));
}

#[test]
fn two_ranks_that_send_to_each_other_first_are_no_pipeline() {
    let act = |other| vec![Act::Compute(MS), send(other), receive(other)];
    let ranks = vec![act(1), act(0)];
    let job = Simulated { steps: 20, ranks, sends_wait: false, transfer_ns: TRANSFER_NS };
    of_job(&job, |graph| {
        assert!(graph.is_followed() && decided_steps(graph).is_some());
        assert_eq!(pipelines(graph), []);
    });
}

#[test]
fn ranks_that_exchange_and_do_the_same_are_compared_before_each_exchange() {
    let act = |rank: u32| {
        let others: Vec<u32> = (0..3).filter(|other| *other != rank).collect();
        let exchange = || Act::Exchange { to: others.clone(), from: others.clone() };
        let late_ns = if rank == 1 { 5 * MS } else { 0 };
        vec![Act::Compute(MS), exchange(), Act::Compute(MS + late_ns), exchange()]
    };
    let ranks = (0..3).map(act).collect();
    let job = Simulated { steps: 20, ranks, sends_wait: true, transfer_ns: TRANSFER_NS };
    let mut steps = recorded(&job, &[]);
    let messages = steps.iter_mut().flat_map(|of| &mut of.messages);
    messages.for_each(|of| of.is_between_like = true);
    let decided = with_graph(&steps, decided_steps).unwrap();
    let [one] = &decided.stretches[..] else { panic!("{decided:?}") };
    assert_eq!((one.rank, one.steps, one.is_of_stage), (1, 19, false));
    assert_eq!((one.own_ns, one.longer_ns), (19 * 6 * MS, 19 * 5 * MS));
}

#[test]
fn ranks_that_reduce_and_seldom_send_are_compared_before_each_reduction() {
    let act = |rank: u32| {
        let late_ns = if rank == 1 { 5 * MS } else { 0 };
        let mut acts = vec![Act::Compute(MS), Act::Meet, Act::Compute(MS + late_ns), Act::Meet];
        match rank {
            0 => acts.push(send(1)),
            1 => acts.push(receive(0)),
            _ => {}
        }
        acts
    };
    let ranks = (0..3).map(act).collect();
    let job = Simulated { steps: 20, ranks, sends_wait: false, transfer_ns: TRANSFER_NS };
    of_job(&job, |graph| {
        assert_eq!(pipelines(graph), []);
        let decided = decided_steps(graph).unwrap();
        let [one] = &decided.stretches[..] else { panic!("{decided:?}") };
        assert_eq!((one.rank, one.steps, one.is_of_stage), (1, 19, false));
        assert_eq!(one.longer_ns, 19 * 5 * MS);
    });
}

#[test]
fn sends_that_are_buffered_do_not_wait_if_their_sender_becomes_quicker() {
    // The sender is first later than the receiver, so that nothing tells of these sends whether they
    // would wait, and then earlier.
    let job = |first_ns: u64| {
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for at in 0..8 {
            sends.extend([Act::Compute(if at < 4 { first_ns } else { 1000 }), send(1)]);
            receives.extend([Act::Compute(4 * MS), receive(0)]);
        }
        sends.extend([Act::Compute(20 * MS), Act::Meet]);
        receives.push(Act::Meet);
        let ranks = vec![sends, receives];
        Simulated { steps: 20, ranks, sends_wait: false, transfer_ns: TRANSFER_NS }
    };
    let (slow, quick) = (job(6 * MS), job(1000));
    let replayed_ns = of_job(&slow, |graph| {
        let quicker = |rank: u32, _, of: &StepMeeting| {
            let is_changed = rank == 0 && of.before_ns == 6 * MS;
            (if is_changed { 1000 } else { of.before_ns }, 0)
        };
        let lengths: Vec<i64> =
            graph.replay(quicker).unwrap().lengths().map(|(.., ns)| ns).collect();
        lengths.iter().sum::<i64>() as f64 / lengths.len() as f64
    });
    assert!((replayed_ns - quick.step_ns()).abs() < 1.0, "{replayed_ns} {}", quick.step_ns());
}

#[test]
fn without_collectives_ranks_begin_where_their_clocks_say() {
    // The second rank receives long after the first has sent, and then the first waits for it.
    let first = vec![Act::Compute(MS), send(1), Act::Compute(2 * MS), receive(1)];
    let second = vec![Act::Compute(5 * MS), receive(0), Act::Compute(MS), send(0)];
    let ranks = vec![first, second];
    let job = Simulated { steps: 3, ranks, sends_wait: false, transfer_ns: TRANSFER_NS };
    let decided = of_job(&job, decided_steps).unwrap();
    assert_eq!(decided.total_ns as f64, 2.0 * job.step_ns());
}
