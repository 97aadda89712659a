//! What decided how long steps took, and what they would take without that: on a simulated job, and
//! on ranks of MPI, whose cause is then removed.

use serde_json::Value;
use tprof_fixture::job::{LATE_OPERATOR, SimulatedJob};
use tprof_tests::{Refused, Scratch, document, need_some, skip, traced};

use crate::hosts::{job, rows};
use crate::hta::sets;
use crate::mpi::{MPIS, built, ranks_with};

const MS: u64 = 1_000_000;

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row:#?}"))
}

#[test]
fn the_late_rank_its_operator_and_the_time_without_it_are_those_of_the_simulation() {
    let scratch = Scratch::new();
    let run = scratch.join("run");
    let late = SimulatedJob { late: Some((3, 5 * MS)), ..job() };
    late.write(&run).unwrap();
    let report = document("stragglers", &run);
    let decided = &rows(&report, "decided_by")[0];
    assert_eq!((&decided["rank"], &decided["operator"]), (&"rank 3".into(), &LATE_OPERATOR.into()));
    let steps = late.steps - 1;
    assert!(number(decided, "steps") > 0.9 * steps as f64, "{decided:#?}");
    let longer_ns = number(decided, "longer_ns");
    assert!((longer_ns - 5e6).abs() < 0.5e6, "{decided:#?}");
    let [predicted] = rows(&report, "what_if") else { panic!("{report:#?}") };
    let per_step = |job: &SimulatedJob| job.true_length_ns() as f64 / steps as f64;
    let step_ns = number(predicted, "step_ns");
    assert!((step_ns / per_step(&late) - 1.0).abs() < 0.001, "{predicted:#?}");
    let truth = per_step(&SimulatedJob { late: None, ..late });
    let without_ns = number(predicted, "without_ns");
    // The other ranks' median has no late moments of its own, which a rank on time has.
    assert!((without_ns / truth - 1.0).abs() < 0.02, "{predicted:#?}, in truth {truth}");
    assert!(number(predicted, "error_without_ns") < 0.02 * truth, "{predicted:#?}");
}

#[test]
fn ranks_that_need_as_long_decide_nothing() {
    let scratch = Scratch::new();
    let run = scratch.join("run");
    SimulatedJob { jitter_ns: MS / 50, ..job() }.write(&run).unwrap();
    let report = document("stragglers", &run);
    assert_eq!(rows(&report, "decided_by").len(), 0, "{report:#?}");
    assert!(!report["tables"].as_object().unwrap().contains_key("what_if"));
}

#[test]
fn the_line_of_a_late_rank_of_mpi_is_named_and_its_removal_predicted() {
    let source = include_str!("../programs/decided.c");
    let line = source.lines().position(|line| line.ends_with("/* HERE late */")).unwrap() + 1;
    for mpi in MPIS {
        let scratch = Scratch::new();
        let Some(program) = built(mpi, "decided.c", &[], &scratch) else { continue };
        let run = traced(&ranks_with(mpi, &[], &program), &["--mem", "off"], &scratch);
        assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
        let report = document("stragglers", &run.run);
        let Some(decided) = rows(&report, "decided_by").first() else {
            panic!("{mpi}: {report:#?}")
        };
        assert_eq!(decided["rank"], "rank 1", "{mpi}: {decided:#?}");
        let predicted = &rows(&report, "what_if")[0];
        assert_eq!(predicted["rank"], "rank 1", "{mpi}: {predicted:#?}");
        // Rank 1 sleeps for 60 ms where the other sleeps for 20 ms, and so half of the step is
        // lateness. The machine's load makes both longer.
        let gain_ns = number(predicted, "step_ns") - number(predicted, "without_ns");
        assert!(gain_ns > 25e6, "{mpi}: {predicted:#?}");
        if decided["line"].is_null() {
            skip(Refused::PerfEvents);
            continue;
        }
        assert_eq!(decided["function"], "victim_is_late", "{mpi}: {decided:#?}");
        assert_eq!(decided["line"], line, "{mpi}: {decided:#?}");
    }
}

#[test]
fn the_rank_that_decided_the_steps_of_a_real_job_is_named_with_its_operator() {
    for set in need_some!(sets()) {
        let report = document("stragglers", &set.run);
        let decided = rows(&report, "decided_by");
        match set.name.as_str() {
            // Of 128 ranks two were recorded, in two steps.
            "sampled_2rank_of_128" => {
                assert_eq!(decided[0]["rank"], rows(&report, "load")[0]["rank"], "{report:#?}");
                assert!(decided[0]["operator"].is_string(), "{decided:#?}");
            }
            "dlrm_8rank_v100" => {
                assert_eq!(decided.len(), 0, "{decided:#?}");
                let why = report["tables"]["decided_by_missing"].as_str().unwrap();
                assert!(why.contains("no two steps in a row"), "{why}");
            }
            _ => {}
        }
        // Nothing tells of these sets who took part in a collective, so their clocks stay as they are.
        assert!(rows(&report, "clocks").is_empty(), "{}", set.name);
    }
}
