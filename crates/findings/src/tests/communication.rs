//! Tests of ExposedCommunication, Stragglers and SlowCollective.

use super::super::outcome::RankFindings;
use super::job::{Job, MS, US, ask, judged};
use crate::rules::stragglers;
use tprof_fixture::pipeline::SimulatedPipeline;
use tprof_trace::model::{Collective, Communicator, Device, Property};

const REDUCE: &str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";

#[test]
fn communication_is_exposed_where_nothing_computes() {
    let job = |exposed_us: u64| {
        let mut job = Job::new(1, 100 * MS);
        job.busy(0, 50 * MS);
        let end = 50 * MS + exposed_us * US;
        job.kernel(39 * MS, 40 * MS, end, REDUCE);
        job.busy(end, 100 * MS);
        job
    };
    let outcome = job(10_000).ask("ExposedCommunication");
    let (finding, places) = &outcome.found[0];
    assert_eq!(finding.bound_ns, 10 * MS);
    assert!(finding.seen.contains("takes 20.0 ms a step"), "{}", finding.seen);
    assert!(finding.seen.contains("computation hides 50.0 %"), "{}", finding.seen);
    assert_eq!((places[0].start_ns, places[0].end_ns), (40 * MS, 60 * MS));
    assert_eq!(job(990).bound("ExposedCommunication"), None);
}

#[test]
fn a_job_of_one_rank_has_no_communication_to_judge() {
    let mut job = Job::new(1, 100 * MS);
    job.busy(0, 100 * MS);
    let file = job.fixture.finish();
    let clear = ask(&file, "ExposedCommunication").no_problem.unwrap();
    assert_eq!(clear, "no communication kernel was recorded");
    let mut ranks = [judged(&file, "rank 0")];
    stragglers::judge(&mut ranks);
    let clear = last(&ranks[0]).no_problem.as_deref();
    assert_eq!(clear, Some("there is one rank, and no collective was recorded"));
}

#[test]
fn ranks_whose_collectives_were_not_recorded_may_have_stragglers() {
    let rank = |label: &str, world: Option<&str>| {
        let mut job = Job::new(2, 100 * MS);
        if let Some(world) = world {
            let (key, value) = (job.fixture.name("distributedInfo"), job.fixture.name(world));
            job.fixture.writer.property(Property { key, value });
        }
        judged(&job.fixture.finish(), label)
    };
    let mut two = vec![rank("rank 0", None), rank("rank 1", None)];
    let mut one_of_two = vec![rank("rank 0", Some(r#"{"backend":"gloo","world_size":2}"#))];
    for ranks in [&mut two, &mut one_of_two] {
        stragglers::judge(ranks);
        let outcome = last(&ranks[0]);
        let why = outcome.unchecked.as_ref().map(|unchecked| unchecked.why.as_str());
        assert_eq!(why, Some("no collective was recorded, and no rank was sampled in one"));
        assert_eq!(outcome.no_problem, None);
    }
}

/// Builds a rank with two steps, each with an all-reduce that takes `takes_us` and ends with the
/// step.
fn rank(label: &str, takes_us: u64) -> RankFindings {
    let mut job = Job::new(2, 100 * MS);
    for step in 1..3 {
        let end = step * 100 * MS;
        job.busy(end - 100 * MS, end - takes_us * US);
        job.kernel(end - 50 * MS, end - takes_us * US, end, REDUCE);
    }
    judged(&job.fixture.finish(), label)
}

fn stragglers_of(times: &[u64]) -> Vec<RankFindings> {
    let label = |at| format!("rank {at}");
    let mut ranks: Vec<RankFindings> =
        times.iter().enumerate().map(|(at, time)| rank(&label(at), *time)).collect();
    stragglers::judge(&mut ranks);
    ranks
}

fn last(rank: &RankFindings) -> &super::super::outcome::Outcome {
    rank.outcomes.last().unwrap()
}

#[test]
fn the_late_rank_is_found_with_the_delay_that_it_causes() {
    // The second rank comes 6 ms after the next-to-last rank, in each of two steps.
    let ranks = stragglers_of(&[9000, 1000, 7000]);
    let (finding, _) = &last(&ranks[1]).found[0];
    assert_eq!(finding.bound_ns, 12 * MS);
    assert_eq!(finding.what, "rank 1 comes late, and the others wait");
    assert!(finding.seen.contains("rank 0 waited longest, 8.0 ms a step"), "{}", finding.seen);
    assert!(last(&ranks[0]).found.is_empty() && last(&ranks[0]).no_problem.is_none());
}

/// A rank with many collectives keeps one in four of them, so only those can be compared.
#[test]
fn delays_are_scaled_by_the_largest_stride_of_all_ranks() {
    let mut ranks: Vec<_> = [9000, 1000, 7000].iter().map(|us| rank("rank", *us)).collect();
    for rank in &mut ranks {
        for (id, met) in (0..).step_by(4).zip(&mut rank.rank_collectives.compared.kept) {
            met.collective_id = id;
        }
    }
    ranks[0].rank_collectives.compared.stride = 4;
    stragglers::judge(&mut ranks);
    let (finding, _) = &last(&ranks[1]).found[0];
    assert_eq!(finding.bound_ns, 4 * 12 * MS);
    assert!(finding.seen.contains("waited longest, 32.0 ms a step"), "{}", finding.seen);
    assert!(finding.seen.contains("Estimated from one in 4"), "{}", finding.seen);
}

#[test]
fn ranks_that_arrive_together_are_not_stragglers() {
    let ranks = stragglers_of(&[1900, 1000, 2500]);
    assert!(last(&ranks[1]).found.is_empty());
    assert_eq!(
        last(&ranks[2]).no_problem.as_deref(),
        Some("ranks come together: at most 0.90 % is lost")
    );
}

#[test]
fn the_file_of_one_rank_cannot_show_which_rank_is_late() {
    let ranks = stragglers_of(&[9000]);
    assert!(last(&ranks[0]).unchecked.is_some());
}

/// Adds two all-reduces of `bytes` to a job with `devices` devices. The first takes `first_ms`, the
/// second 20 ms.
fn reduces(job: &mut Job, devices: u32, bytes: u64, group_size: Option<u32>, first_ms: u64) {
    for device in 1..devices {
        let name = job.fixture.name("NVIDIA H200");
        job.fixture.writer.device(&Device { device, name, ..Device::default() });
    }
    // This communicator contains all ranks. If it weren't recorded, the ranks could be on any
    // hosts.
    let all = Communicator { size: group_size, ..Communicator::default() };
    job.fixture.writer.communicator(&all);
    for (start_ms, long_ms) in [(10, first_ms), (60, 20)] {
        job.kernel(start_ms * MS, start_ms * MS + US, (start_ms + long_ms) * MS + US, REDUCE);
        let correlation = job.fixture.kernels.last().unwrap().correlation;
        let (name, bytes) = (job.fixture.name("all_reduce"), Some(bytes));
        let row = Collective { name, correlation, bytes, group_size, ..Collective::default() };
        job.fixture.collectives.push(row);
    }
}

#[test]
fn slow_collectives_are_judged_by_their_shortest_call() {
    let mut job = Job::new(1, 100 * MS).device(9);
    // At 450 GB/s, 900 MB · 1.75 take 3.5 ms. The calls take 20 and 40 ms, and 20 ms of the second
    // are a wait.
    reduces(&mut job, 8, 900_000_000, Some(8), 40);
    let outcome = job.ask("SlowCollective");
    let (finding, places) = &outcome.found[0];
    assert_eq!((finding.bound_ns, places.len()), (2 * 16_500_000, 2));
    assert!(finding.seen.contains("over 8 ranks at 17.5 % of the links' peak"), "{}", finding.seen);
}

#[test]
fn messages_that_are_fast_or_small_are_not_slow() {
    let ask = |devices, bytes, ranks| {
        let mut job = Job::new(1, 100 * MS).device(9);
        reduces(&mut job, devices, bytes, ranks, 20);
        job.ask("SlowCollective")
    };
    let fast = ask(8, 4_000_000_000, Some(8));
    assert!(fast.no_problem.unwrap().contains("77.8 % of the links' peak"));
    assert!(ask(8, 1 << 20, Some(8)).no_problem.unwrap().starts_with("no message has 64"));
    for (devices, ranks, why) in [
        (8, Some(2), "only some of a device's links"),
        (1, Some(8), "several hosts"),
        (8, None, "how many ranks take part"),
    ] {
        let unchecked = ask(devices, 900_000_000, ranks).unchecked.unwrap();
        assert!(unchecked.why.contains(why), "{unchecked:?}");
    }
}

/// Judges the stages of a simulated pipeline of four, of which the third needs this time forward.
fn stages(third_ns: u64) -> Vec<RankFindings> {
    let mut job = SimulatedPipeline {
        steps: 20,
        microbatches: 8,
        stages: vec![(2 * MS, 4 * MS); 4],
        ahead_ns: Vec::new(),
        received: None,
    };
    job.stages[2].0 = third_ns;
    let files = job.files();
    let mut ranks: Vec<RankFindings> =
        files.iter().zip(0..).map(|(file, at)| judged(file, &format!("rank {at}"))).collect();
    stragglers::judge(&mut ranks);
    ranks
}

#[test]
fn the_slowest_stage_of_a_pipeline_is_found_and_not_the_one_that_ends_last() {
    let ranks = stages(5 * MS);
    let (finding, _) = &last(&ranks[2]).found[0];
    assert_eq!(finding.what, "rank 2 is the slowest stage of its pipeline, and the others wait");
    assert!(finding.seen.contains("150.0 % of the median of 4 stages"), "{}", finding.seen);
    assert!(finding.seen.contains("most of all in aten::mm"), "{}", finding.seen);
    // Eight microbatches of 3 ms, of a step of 93 ms.
    let (share, window_ns) = (24.0 / 93.0, ranks[2].window_ns as f64);
    assert!((finding.bound_ns as f64 / window_ns - share).abs() < 0.02, "{finding:?}");
    assert!([0, 1, 3].iter().all(|at| last(&ranks[*at]).found.is_empty()));
}

#[test]
fn stages_that_need_the_same_time_are_not_stragglers() {
    let ranks = stages(2 * MS);
    for rank in &ranks {
        assert!(last(rank).found.is_empty());
        let clear = last(rank).no_problem.as_deref();
        assert_eq!(
            clear,
            Some("stages of the pipeline need about the same time: at most 0.0 % is lost")
        );
    }
}
