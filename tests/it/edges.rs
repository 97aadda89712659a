//! Odd or failing allocations, forks, spawns and execs behave as without tprof, and are counted.
//! The cases are those that the C library's and the kernel's own tests look for.

use crate::sums::{exact, exact_in_threads, recorded};
use tprof_tests::{
    DEFAULT, EXACT, Job, Kind, Scratch, assert_unchanged, build, memory_report, need_some, program,
    report, traced,
};

const BOTH: &[&[&str]] = &[EXACT, DEFAULT];

/// A program whose output does not depend on the environment of the tests.
fn victim(name: &str) -> Job {
    Job::new(program(name))
}

#[test]
fn edges_of_the_allocator_behave_as_without_tprof() {
    assert_unchanged(&victim("malloc_edges"), BOTH, &Scratch::new());
}

#[test]
fn edges_of_the_allocator_are_counted_once() {
    let job = victim("malloc_edges").arg("expect");
    // strdup allocates too, so some allocations lie outside of the victim's own functions.
    exact(&job);
    let run = recorded(&job, DEFAULT);
    let sampled = report(&run.run);
    assert_eq!(sampled.total("allocations"), run.wanted.allocations);
    assert_eq!(sampled.total("frees"), run.wanted.frees);
    assert_eq!(sampled.total("allocated_bytes"), run.wanted.bytes);
}

#[test]
fn a_library_with_an_allocator_of_its_own_keeps_it() {
    let job = victim("plugin_allocator").arg(program("bump"));
    let run = assert_unchanged(&job, BOTH, &Scratch::new());
    assert!(run.outcome.stdout.contains("one of its own, everyone's is another"));
}

#[test]
fn forks_of_every_kind_behave_as_without_tprof() {
    for _ in 0..3 {
        assert_unchanged(&victim("fork_edges"), BOTH, &Scratch::new());
    }
}

#[test]
fn forks_of_every_kind_are_counted() {
    let (report, wanted) = exact_in_threads(&victim("fork_edges"));
    let sampled = recorded(&victim("fork_edges"), DEFAULT);
    let sampled = tprof_tests::report(&sampled.run);
    assert_eq!(sampled.lost(), 0, "{}", sampled.0["completeness"]);
    assert_eq!(sampled.total("allocations"), report.total("allocations"), "{wanted:?}");
}

#[test]
fn spawns_and_vforks_that_fail_behave_as_without_tprof() {
    assert_unchanged(&victim("spawn_edges"), BOTH, &Scratch::new());
}

#[test]
fn allocations_around_a_spawn_are_counted() {
    let scratch = Scratch::new();
    let run = traced(&victim("spawn_edges"), EXACT, &scratch);
    let wanted = tprof_tests::expected(&run.outcome.stdout);
    let report = memory_report(&run.run);
    assert_eq!(report.lost(), 0, "{}", report.0["completeness"]);
    assert_eq!(report.in_victims("allocations"), wanted.allocations);
    let blind = report.0["completeness"]["blind"].as_array().unwrap();
    let bare = blind.iter().filter(|b| b["why"].as_str().unwrap().contains("environment"));
    assert_eq!(bare.count(), 2, "{blind:?}");
}

#[test]
fn execs_that_fail_and_odd_environments_behave_as_without_tprof() {
    assert_unchanged(&victim("exec_edges"), BOTH, &Scratch::new());
}

/// The loader of a 32-bit program would complain if it were told to preload a 64-bit library.
#[test]
fn odd_environments_of_a_32_bit_program_behave_as_without_tprof() {
    let leaf = need_some!(build("exec_edges", Kind::M32));
    assert_unchanged(&victim("exec_edges").arg(leaf), BOTH, &Scratch::new());
}

#[test]
fn a_program_is_still_recorded_after_its_exec_failed() {
    let scratch = Scratch::new();
    let run = traced(&victim("exec_edges"), EXACT, &scratch);
    let wanted = tprof_tests::expected(&run.outcome.stdout);
    let report = memory_report(&run.run);
    assert_eq!(report.lost(), 0, "{}", report.0["completeness"]);
    // Each executed program allocates one block. It is recorded, except in the programs that are
    // listed as blind.
    let ran = run.outcome.stdout.lines().filter(|line| line.starts_with("leaf ")).count() as i64;
    let blind = report.0["completeness"]["blind"].as_array().unwrap();
    assert_eq!(blind.len(), 5, "{blind:?}");
    assert!(blind.iter().all(|b| b["why"].as_str().unwrap().contains("dropped")), "{blind:?}");
    assert_eq!(report.in_victims("allocations"), wanted.allocations + ran - 5);
}
