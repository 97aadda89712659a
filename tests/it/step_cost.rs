//! Tests of the cost of recording per step, which every report of a run with steps has. With
//! `--overhead paired`, tprof leaves some steps unrecorded, to compare them with the others.

use serde_json::Value;
use std::path::{Path, PathBuf};
use tprof_tests::{Outcome, Scratch, document, program, tprof};
use tprof_trace::TraceFile;
use tprof_trace::model::counter;

fn ran(job: &[&str], options: &[&str]) -> (Scratch, PathBuf, Outcome) {
    let scratch = Scratch::new();
    let run = scratch.run();
    let words = [&["run"], options, &["-o", run.to_str().unwrap(), "--"]].concat();
    let outcome = tprof(words).arg(program("scheduled")).args(job).run_in(scratch.cwd());
    (scratch, run, outcome.expect_code(0))
}

fn step_of(run: &Path) -> Value {
    document("summary", run)["overhead"]["step"].clone()
}

/// Returns the numbers of the steps in the report.
fn reported(run: &Path) -> Vec<u64> {
    let report = document("steps", run);
    let rows = report["tables"]["steps"].as_array().unwrap();
    rows.iter().map(|row| row["step"].as_u64().unwrap()).collect()
}

/// Returns the numbers of all steps whose beginning was counted, recorded or not.
fn begun(run: &Path) -> Vec<u64> {
    let file = TraceFile::open(&run.join("rank-0.tprof")).unwrap();
    let rows = file.counters().iter().filter(|row| file.name(row.name) == counter::STEPS_BEGUN);
    rows.map(|row| row.value as u64).collect()
}

#[test]
fn every_report_says_what_recording_took_of_a_step() {
    let (scratch, run, outcome) = ran(&["nvtx", "40", "20"], &["--mem", "exact"]);
    let step = step_of(&run);
    let text = step["text"].as_str().unwrap_or_else(|| panic!("{step}"));
    let (low, high) = (step["ns_low"].as_u64().unwrap(), step["ns_high"].as_u64().unwrap());
    assert!(low <= high && high < 1_000_000_000, "{step}");
    assert_eq!(step["has_totals"], true);
    assert_eq!(step["rank"], "rank 0");
    let parts = step["parts"].as_array().unwrap();
    // Each step keeps ten blocks; the start of the program, which has more, belongs to no step.
    let heap = parts.iter().find(|part| part["part"] == "heap").unwrap();
    let count = heap["count"].as_f64().unwrap();
    assert!((5.0..15.0).contains(&count), "{heap}");
    let brief = text.split_once(':').map_or(text, |(brief, _)| brief);
    assert!(brief.starts_with("a step took ") && brief.contains("; recording took "), "{text}");
    assert!(outcome.stderr.contains(brief), "{brief}\n{}", outcome.stderr);
    let printed = |words: &[&str]| {
        let outcome = tprof(words).arg(&run).run_in(scratch.cwd()).expect_code(0);
        outcome.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(printed(&["report", "summary"]).contains(brief), "{brief}");
    assert!(printed(&["report", "summary", "--markdown"]).contains(brief), "{brief}");
    let page = printed(&["export", "--to", "report", "-o", "-"]);
    assert!(page.contains(brief), "{brief}");
    assert_eq!(step["paired"], Value::Null);
    assert!(step["paired_missing"].as_str().unwrap().contains("--overhead paired"), "{step}");
}

#[test]
fn a_job_without_steps_has_a_reason_in_place_of_a_cost_per_step() {
    let (_scratch, run, outcome) = ran(&["none", "3", "5"], &["--overhead", "paired"]);
    let overhead = document("summary", &run)["overhead"].clone();
    assert_eq!(overhead["step"], Value::Null);
    assert!(overhead["step_missing"].as_str().unwrap().contains("step"), "{overhead}");
    // All steps were recorded.
    assert!(!outcome.stderr.contains("not recorded"), "{outcome:?}");
}

#[test]
fn the_last_5_of_20_steps_are_unrecorded_and_all_starts_are_kept() {
    for how in ["nvtx", "abi"] {
        // Steps are so long that five of them take more than the required quarter of a second.
        let (_scratch, run, outcome) = ran(&[how, "42", "60"], &["--overhead", "paired"]);
        let plan = "tprof: records all steps but the last 5 of each 20\n";
        assert!(outcome.stderr.starts_with(plan), "{outcome:?}");
        // A mark begins a step, and the last step has no end.
        let recorded: Vec<u64> = (0..15).chain(20..35).chain(40..42).collect();
        let ends = if how == "abi" { recorded.len() - 1 } else { recorded.len() };
        assert_eq!(reported(&run), recorded[..ends], "{how}");
        assert_eq!(begun(&run), (0..42).collect::<Vec<_>>(), "{how}");
        let summary = document("summary", &run);
        let blind = summary["completeness"]["blind"].as_array().unwrap();
        let left_out = blind.iter().find(|row| row["what"] == "the last 5 of each 20 steps");
        let why = left_out.unwrap_or_else(|| panic!("{summary}"))["why"].as_str().unwrap();
        assert!(why.contains("--overhead paired"), "{why}");
        let missing = step_of(&run)["paired_missing"].clone();
        assert_eq!(missing, "2 stretches of unrecorded steps could be compared; 6 are enough");
    }
}

#[test]
fn short_steps_are_left_out_in_longer_stretches() {
    let (_scratch, run, _) = ran(&["nvtx", "60", "2"], &["--overhead", "paired"]);
    assert_eq!(begun(&run), (0..60).collect::<Vec<_>>());
    let reported = reported(&run);
    assert!((0..30).all(|step| reported.contains(&step)), "{reported:?}");
}

#[test]
fn paired_overhead_excludes_other_ways_to_record_a_part() {
    let scratch = Scratch::new();
    for (option, named) in [
        ("--schedule=active=3", "schedule"),
        ("--capture-range=step:1-2", "capture-range"),
        ("--paused", "paused"),
        ("--delay=1s", "delay"),
    ] {
        let words = ["run", "--overhead", "paired", option, "--", "/bin/true"];
        let outcome = tprof(words).run_in(scratch.cwd());
        assert_eq!(outcome.code, Some(125), "{outcome:?}");
        let both = outcome.stderr.contains("overhead = paired") && outcome.stderr.contains(named);
        assert!(both, "{outcome:?}");
    }
}
