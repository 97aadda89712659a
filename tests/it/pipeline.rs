//! Pipelines: sends and receives are followed, bubbles and the slow stage are found, and what
//! balancing it gains is predicted. On a simulated job of NCCL, and on ranks of MPI, whose cause is
//! then removed. Also what the ranks of experts receive.

use serde_json::Value;
use tprof_fixture::pipeline::SimulatedPipeline;
use tprof_tests::{Refused, Scratch, document, skip, traced};

use crate::hosts::rows;
use crate::mpi::{MPIS, built, ranks_of};

const MS: u64 = 1_000_000;
const STAGES: usize = 4;
const MICROBATCHES: u64 = 8;

/// Four stages that need the same time, each on a host of its own, with clocks that are seconds
/// apart.
pub fn job() -> SimulatedPipeline {
    SimulatedPipeline {
        steps: 30,
        microbatches: MICROBATCHES as usize,
        stages: vec![(2 * MS, 4 * MS); STAGES],
        ahead_ns: vec![0, 7_000 * MS, 30 * MS, 1_234_567],
        received: Some(vec![1000, 1000, 3000, 3000]),
    }
}

/// The same job, in which the third stage needs half as long again.
fn uneven() -> SimulatedPipeline {
    let mut job = job();
    job.stages[2] = (3 * MS, 6 * MS);
    job
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row:#?}"))
}

fn report(job: &SimulatedPipeline) -> Value {
    let scratch = Scratch::new();
    let run = scratch.join("run");
    job.write(&run).unwrap();
    document("stragglers", &run)
}

/// Checks that a report has the stages in order, and the microbatches and bubbles of the schedule.
fn assert_stages(report: &Value) -> &[Value] {
    let stages = rows(report, "stages");
    let ranks: Vec<&str> = stages.iter().map(|row| row["rank"].as_str().unwrap()).collect();
    assert_eq!(ranks, ["rank 0", "rank 1", "rank 2", "rank 3"], "{report:#?}");
    for (at, row) in stages.iter().enumerate() {
        assert_eq!((&row["stage"], &row["microbatches"]), (&at.into(), &MICROBATCHES.into()));
        assert!((number(row, "ideal_of_step") - 3.0 / 11.0).abs() < 1e-9, "{row:#?}");
    }
    stages
}

#[test]
fn stages_of_a_balanced_pipeline_wait_as_long_as_their_schedule_says() {
    let report = report(&job());
    for row in assert_stages(&report) {
        // Transfers take 0.4 % of a step.
        assert!((number(row, "of_step") - 3.0 / 11.0).abs() < 0.01, "{row:#?}");
        assert!((number(row, "of_median") - 1.0).abs() < 0.01, "{row:#?}");
        assert!((number(row, "own_ns") / 6e6 - 1.0).abs() < 0.01, "{row:#?}");
    }
    assert_eq!(rows(&report, "decided_by").len(), 0, "{report:#?}");
}

#[test]
fn the_slow_stage_is_named_and_the_time_without_it_is_that_of_the_balanced_simulation() {
    let report = report(&uneven());
    let [decided] = rows(&report, "decided_by") else { panic!("{report:#?}") };
    assert_eq!((&decided["rank"], &decided["operator"]), (&"rank 2".into(), &"aten::mm".into()));
    assert_eq!(number(decided, "of_steps"), 1.0);
    let [predicted] = rows(&report, "what_if") else { panic!("{report:#?}") };
    let step_ns = number(predicted, "step_ns");
    assert!((step_ns / uneven().true_step_ns() - 1.0).abs() < 0.001, "{predicted:#?}");
    let truth_ns = job().true_step_ns();
    let without_ns = number(predicted, "without_ns");
    assert!((without_ns / truth_ns - 1.0).abs() < 0.01, "{predicted:#?}, in truth {truth_ns}");
    let of_median: Vec<f64> =
        assert_stages(&report).iter().map(|row| number(row, "of_median")).collect();
    assert!((of_median[2] - 1.5).abs() < 0.01, "{of_median:?}");
}

#[test]
fn ranks_of_experts_have_their_share_of_the_tokens_or_none_where_sizes_are_not_recorded() {
    let of_mean = |report: &Value| -> Vec<Value> {
        rows(report, "experts").iter().map(|row| row["of_mean"].clone()).collect()
    };
    let known = report(&job());
    assert_eq!(of_mean(&known), [0.5, 0.5, 1.5, 1.5].map(Value::from), "{known:#?}");
    let received = &rows(&known, "experts")[2]["received_bytes"];
    assert_eq!(*received, 3000 * 2 * job().steps, "{known:#?}");
    // The first stage ends the backward pass last, and the others wait for it.
    let last: Vec<u64> =
        rows(&known, "experts").iter().map(|row| row["last"].as_u64().unwrap()).collect();
    assert_eq!(last, [job().steps, 0, 0, 0], "{known:#?}");
    let unknown = report(&SimulatedPipeline { received: None, ..job() });
    assert_eq!(of_mean(&unknown), [Value::Null, Value::Null, Value::Null, Value::Null]);
    let row = &rows(&unknown, "experts")[0];
    assert_eq!(row["exchanges"], job().steps);
    assert!(row["of_mean_missing"].as_str().unwrap().contains("not recorded"), "{row:#?}");
}

#[test]
fn the_line_of_a_slow_stage_of_mpi_is_named_and_its_removal_predicted() {
    let source = include_str!("../programs/pipeline.c");
    let line = source.lines().position(|line| line.ends_with("/* HERE slow */")).unwrap() + 1;
    for (mpi, how) in MPIS.into_iter().flat_map(|mpi| [(mpi, ""), (mpi, "large")]) {
        let scratch = Scratch::new();
        let Some(program) = built(mpi, "pipeline.c", &["-ldl"], &scratch) else { continue };
        let run = traced(
            &ranks_of(STAGES as u32, mpi, &[], &program).arg(how),
            &["--mem", "off"],
            &scratch,
        );
        assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
        let report = document("stragglers", &run.run);
        let rows_of = assert_stages(&report);
        // Stage 2 sleeps for 12 ms where the others sleep for 4 ms.
        let own: Vec<f64> = rows_of.iter().map(|row| number(row, "own_ns")).collect();
        assert!(own[2] > 24e6 && own.iter().all(|ns| *ns >= 8e6), "{mpi} {how}: {own:?}");
        let Some(decided) = rows(&report, "decided_by").first() else {
            panic!("{mpi} {how}: {report:#?}")
        };
        assert_eq!(decided["rank"], "rank 2", "{mpi} {how}: {decided:#?}");
        let predicted = &rows(&report, "what_if")[0];
        assert_eq!(predicted["rank"], "rank 2", "{mpi} {how}: {predicted:#?}");
        // A microbatch takes the slow stage 16 ms longer, and a step has eight. The machine's load
        // makes all stages slower.
        let gain_ns = number(predicted, "step_ns") - number(predicted, "without_ns");
        assert!(gain_ns > 64e6, "{mpi} {how}: {predicted:#?}");
        let findings = document("findings", &run.run);
        let straggler = rows(&findings, "findings").iter().find(|row| row["rule"] == "Stragglers");
        let what = straggler.map_or("", |row| row["what"].as_str().unwrap());
        assert!(what.starts_with("rank 2 is the slowest stage"), "{mpi} {how}: {findings:#?}");
        if decided["line"].is_null() {
            skip(Refused::PerfEvents);
            continue;
        }
        assert_eq!(decided["function"], "victim_is_slow", "{mpi} {how}: {decided:#?}");
        assert_eq!(decided["line"], line, "{mpi} {how}: {decided:#?}");
        assert_eq!(straggler.unwrap()["line"], line, "{mpi} {how}: {straggler:#?}");
    }
}
