//! Tests of the rule CacheMiss.

use tprof_document::RankContext;
use tprof_facts::Clock;
use tprof_facts::compile::RankCompile;
use tprof_rank::{Needs, RankTrace};

use super::super::outcome::RankFindings;
use super::super::rules::RULES;
use super::super::scene::Scene;
use super::job::{Job, MS};

#[test]
fn a_cache_miss_costs_its_share_of_the_jobs_life() {
    let mut job = Job::new(1, 100 * MS);
    job.range(0, 600_000 * MS, "ten minutes");
    let file = job.fixture.finish();
    let mut rank = RankTrace::load(&file, Needs::ALL);
    let log = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/compile/torch-2.8.log.zst");
    rank.compile = RankCompile::of_logs(&[log.into()]);
    let spent = |of_aot: bool| -> u64 {
        let frames = rank.compile.logs.iter().flat_map(|read| &read.log.frames);
        let phases = frames.map(|frame| {
            let phases = &frame.phases;
            let aot_us = phases.aot_us.filter(|_| of_aot);
            [aot_us, phases.inductor_us, phases.kernels_us].into_iter().flatten().sum::<u64>()
        });
        phases.sum::<u64>() * 1000
    };
    let scene = Scene::of(&rank, Clock::default());
    let at = RankContext {
        rank: Some(0),
        label: "rank 0".to_owned(),
        file: String::new(),
        clock: Clock::default(),
        machine: Default::default(),
    };
    let outcomes = RankFindings::of(&scene, &at, RULES).outcomes;
    let outcome = outcomes.into_iter().find(|one| one.rule == "CacheMiss").unwrap();
    let (finding, _) = &outcome.found[0];
    assert_eq!((finding.of_ns, finding.is_once), (Some(600_000 * MS), true));
    // Neither cache contained a graph of the job, so the time of tracing counts too.
    assert!(finding.bound_ns > spent(false), "{finding:?}");
    assert!(finding.bound_ns <= spent(true), "{finding:?}");
    assert!(finding.seen.contains("of the job's 10 min 0"), "{}", finding.seen);
}
