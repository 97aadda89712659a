//! `--budget`: what costs more is recorded less from some moment on, each report says from when on,
//! and the sums stay exact.

use crate::operators::build_stand_in;
use serde_json::Value;
use std::path::{Path, PathBuf};
use tprof_tests::{
    Job, Live, Outcome, Report, Scratch, document, expected, memory_report, program, rank_file,
    report, run_info, stack, tprof, traced, traced_job, wait_until,
};
use tprof_trace::TraceFile;
use tprof_trace::model::{MarkKind, property};

/// The stacks of the program `over_budget` cost far more, and its samples far less.
const LITTLE: &[&str] = &["--budget", "0.1%", "--mem", "exact", "--activities", "mem"];

fn job(how: &str) -> Job {
    Job::new(program("over_budget")).arg(how)
}

/// Returns what `run.json` says that the budget has left out: process, what, and why.
fn left_out(info: &Value) -> Vec<[String; 3]> {
    let blind = info["completeness"]["blind"].as_array().into_iter().flatten();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    blind
        .filter(|row| row["as_asked"] == true && text(row, "why").starts_with("--budget"))
        .map(|row| ["process", "what", "why"].map(|key| text(row, key)))
        .collect()
}

fn lacks(info: &Value, what: &str) -> bool {
    left_out(info).iter().any(|row| row[1] == format!("later {what}"))
}

const STACKS: &str = "stacks of allocations and mappings";

/// Runs a job until its run lacks this, and then to its end.
fn until_it_lacks(
    what: &str,
    job: &Job,
    options: &[&str],
    scratch: &Scratch,
) -> (PathBuf, Outcome) {
    let run = scratch.run();
    let mut live = Live::start(&traced_job(job, options, &run), &scratch.cwd());
    live.wait_for("ready");
    run_info(&run, |info| lacks(info, what));
    let outcome = live.finish();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    (run, outcome)
}

/// Returns the only note of a report on this option.
#[track_caller]
fn note(report: &Value, option: &str) -> String {
    let notes = report["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap());
    let notes: Vec<&str> = notes.filter(|note| note.contains(option)).collect();
    let [note] = notes[..] else { panic!("{option} in {}", report["notes"]) };
    note.to_owned()
}

#[track_caller]
fn has_exact_sums(report: &Report, outcome: &Outcome) {
    let wanted = expected(&outcome.stdout);
    for (name, wanted) in [
        ("allocations", wanted.allocations),
        ("frees", wanted.frees),
        ("allocated_bytes", wanted.bytes),
        ("live_at_exit_bytes", wanted.live),
        ("peak_bytes", wanted.peak),
    ] {
        assert_eq!(report.total(name), wanted, "{name}");
    }
    assert_eq!(report.lost(), 0, "{}", report.0["completeness"]);
}

/// Returns the live bytes of the sites whose stacks have a frame with this text, or of those without
/// a stack.
fn live_bytes_at(report: &Report, frame: Option<&str>) -> i64 {
    let sites = report.only()["sites"].as_array().unwrap().iter();
    let at = sites.filter(|site| match frame {
        None => stack(site).is_empty(),
        Some(frame) => stack(site).iter().any(|of| of.contains(frame)),
    });
    at.map(|site| site["live_bytes"].as_i64().unwrap()).sum()
}

#[test]
fn stacks_that_cost_too_much_end_and_the_sums_stay_exact() {
    let scratch = Scratch::new();
    let (run, outcome) = until_it_lacks(STACKS, &job("heavy"), LITTLE, &scratch);
    let memory = memory_report(&run);
    has_exact_sums(&memory, &outcome);
    // Seven blocks of 1,000 bytes have a stack, of which three were freed after the change. Eleven
    // of 2,000 came after it.
    assert_eq!(live_bytes_at(&memory, Some("victim_before")), 4_000, "{}", memory.0);
    assert_eq!(live_bytes_at(&memory, Some("victim_after")), 0, "{}", memory.0);
    assert_eq!(live_bytes_at(&memory, None), 22_000, "{}", memory.0);
    for report in [&memory.0, &report(&run).0] {
        let note = note(report, "without stacks");
        let (since, cost) =
            note.split_once(" s on without stacks of allocations and mappings: ").unwrap();
        assert!(since.starts_with("rank 0: from "), "{note}");
        assert!(cost.starts_with("--budget 0.1% (they cost "), "{note}");
    }
    let file = rank_file(&run, 0);
    let marks = file.marks().iter().filter(|mark| mark.kind == MarkKind::Mark);
    let marks: Vec<&str> = marks.map(|mark| file.name(mark.name)).collect();
    assert!(
        marks[0].starts_with("without stacks of allocations and mappings from here on"),
        "{marks:?}"
    );
    let summary = tprof(["report"]).arg(&run).run_in(scratch.path()).expect_code(0);
    assert!(summary.stdout.contains("PARTIAL, as asked"), "{}", summary.stdout);
}

#[test]
fn what_is_left_and_costs_more_than_the_budget_is_said() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let options = [LITTLE, &["--stacks", "off"]].concat();
    let mut live = Live::start(&traced_job(&job("heavy"), &options, &run), &scratch.cwd());
    live.wait_for("ready");
    // Counting allocations can't be thinned.
    let is_said = |file: TraceFile| file.properties().any(|(key, _)| key.ends_with(":rest"));
    wait_until("nothing is left to thin", || {
        TraceFile::open(&run.join("rank-0.tprof")).is_ok_and(is_said)
    });
    assert_eq!(live.finish().code, Some(0));
    assert!(left_out(&run_info(&run, |_| true)).is_empty());
    let note = note(&report(&run).0, "what is left costs");
    assert!(note.contains("--budget 0.1%"), "{note}");
}

#[test]
fn an_export_says_from_when_on_stacks_are_missing() {
    let scratch = Scratch::new();
    let (run, _) = until_it_lacks(STACKS, &job("heavy"), LITTLE, &scratch);
    let export = tprof(["export", "--to", "folded", "-o", "folded"]).arg(&run);
    let outcome = export.run_in(scratch.path()).expect_code(0);
    assert!(outcome.stderr.contains("on without stacks of allocations"), "{outcome:?}");
}

#[test]
fn a_job_that_costs_little_is_recorded_as_without_a_budget() {
    let scratch = Scratch::new();
    let options = ["--budget", "10%", "--mem", "exact", "--activities", "mem"];
    let run = traced(&job("light"), &options, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    assert!(left_out(&run_info(&run.run, |_| true)).is_empty());
    let memory = memory_report(&run.run);
    has_exact_sums(&memory, &run.outcome);
    assert!(!memory.0["notes"].to_string().contains("--budget"), "{}", memory.0["notes"]);
    let site = memory.sites(|_| true);
    assert!(stack(&site[0]).iter().any(|frame| frame.contains("victim_deep")), "{site:?}");
}

#[test]
fn each_process_has_a_budget_of_its_own() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let mut live = Live::start(&traced_job(&job("child"), LITTLE, &run), &scratch.cwd());
    let child = live.wait_for("child ").replace("child ", "");
    run_info(&run, |info| lacks(info, STACKS));
    assert_eq!(live.finish().code, Some(0));
    let info = run_info(&run, |info| info["finished"] == true);
    let processes: Vec<String> = left_out(&info).into_iter().map(|[process, ..]| process).collect();
    assert_eq!(processes, [format!("{child} over_budget")]);
}

#[test]
fn each_rank_has_a_budget_of_its_own() {
    let scratch = Scratch::new();
    let (run, program) = (scratch.run(), program("over_budget"));
    let program = program.display();
    let both = Job::sh(&format!(
        "RANK=1 WORLD_SIZE=2 {program} light </dev/null & RANK=0 WORLD_SIZE=2 {program} heavy; wait"
    ));
    let options = [LITTLE, &["--keep", "60s"]].concat();
    let mut live = Live::start(&traced_job(&both, &options, &run), &scratch.cwd());
    live.wait_for("ready");
    run_info(&run, |info| lacks(info, STACKS));
    assert_eq!(live.finish().code, Some(0));
    let thinned = |rank| {
        let file = rank_file(&run, rank);
        file.properties().filter(|(key, _)| key.starts_with(property::THINNED)).count()
    };
    assert!(thinned(0) > 0 && thinned(1) == 0, "{} {}", thinned(0), thinned(1));
    let notes = memory_report(&run).0["notes"].to_string();
    assert!(notes.contains("without stacks"), "{notes}");
}

#[test]
fn a_run_that_keeps_the_last_part_says_what_ended_before_it() {
    let scratch = Scratch::new();
    let options = [LITTLE, &["--keep", "1s"]].concat();
    let run = scratch.run();
    let mut live = Live::start(&traced_job(&job("heavy"), &options, &run), &scratch.cwd());
    live.wait_for("ready");
    run_info(&run, |info| lacks(info, STACKS));
    tprof(["ctl", "dump"]).arg(&run).run_in(scratch.path()).expect_code(0);
    assert_eq!(live.finish().code, Some(0));
    for run in [run.join("dump-1"), run] {
        assert!(lacks(&run_info(&run, |_| true), STACKS), "{}", run.display());
        note(&memory_report(&run).0, "without stacks");
    }
}

/// Returns the property of the file of rank 0 about its operators.
fn recorded(run: &Path) -> Value {
    serde_json::from_str(rank_file(run, 0).property("pytorch").unwrap()).unwrap()
}

#[test]
fn operators_of_all_steps_become_those_of_some() {
    let scratch = Scratch::new();
    if !build_stand_in(&scratch) {
        return;
    }
    let job = Job::new(scratch.join("linked")).arg("trains-on");
    let options = ["--operators", "names", "--budget", "0.1%", "--mem", "off"];
    let run = scratch.run();
    let mut live = Live::start(&traced_job(&job, &options, &run), &scratch.cwd());
    live.wait_for("ready");
    run_info(&run, |info| lacks(info, "operators of most steps"));
    // The process hears of it at its next measurement, and only then leaves steps out.
    wait_until("the process leaves steps out", || {
        rank_file(&run, 0).property("pytorch").is_some_and(|text| text.contains("--budget 0.1%"))
    });
    assert_eq!(live.finish().code, Some(0));
    let operators = document("operators", &run);
    assert!(note(&operators, "operators of some steps").contains("--budget 0.1% (they cost "));
    assert!(!operators["notes"].to_string().contains("--operators names"), "{operators}");
}

#[test]
fn operators_that_still_cost_too_much_are_not_recorded_any_more() {
    let scratch = Scratch::new();
    if !build_stand_in(&scratch) {
        return;
    }
    let job = Job::new(scratch.join("linked")).arg("trains-on");
    let options = ["--operators", "auto", "--budget", "0.01%", "--mem", "off"];
    let (run, outcome) = until_it_lacks("operators", &job, &options, &scratch);
    assert_eq!(recorded(&run)["operators"], "ranges");
    assert!(outcome.stdout.contains("callbacks 0"), "{outcome:?}");
    note(&document("operators", &run), "on without operators");
}
