//! `--on-hang`: a hang is noticed once, with its reason, and a job that does something is left
//! alone.

use super::{hang_c, line_of, nccl_with, source};
use serde_json::Value;
use std::path::Path;
use tprof_tests::{Job, Scratch, document, need_some, program, tprof, traced, wait_until};

/// Returns the files about hangs in a run.
fn hangs(run: &Path) -> Vec<Value> {
    let names = std::fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path());
    let is_hang = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("hang-") && name.ends_with(".json")
    };
    let read = |path| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    names.filter(|path| is_hang(path)).map(read).collect()
}

fn finding(run: &Path) -> Option<Value> {
    let findings = document("findings", run);
    let rows = findings["tables"]["findings"].as_array().unwrap();
    rows.iter().find(|row| row["rule"] == "Hang").cloned()
}

fn quiet(how: &str, seconds: &str) -> Job {
    Job::new(program("goes_quiet")).args([how, seconds])
}

#[test]
fn a_rank_that_is_late_is_written_into_the_run_with_all_stacks() {
    let hanging = need_some!(nccl_with("late", None, &["--on-hang", "2s"]));
    wait_until("the hang is noticed", || !hangs(&hanging.run).is_empty());
    let written = hangs(&hanging.run).remove(0);
    let verdict = &written["verdict"];
    assert_eq!(verdict["kind"], "late_rank", "{written:#}");
    assert_eq!((&verdict["rank"], &verdict["function"]), (&1.into(), &"loads".into()));
    assert_eq!(verdict["line"], line_of(&hang_c(), "HERE late"), "{written:#}");
    for rank in [0, 1] {
        assert!(!written["ranks"][rank]["threads"].as_array().unwrap().is_empty(), "{written:#}");
    }
    wait_until("the finding is in the run", || finding(&hanging.run).is_some());
    let found = finding(&hanging.run).unwrap();
    assert_eq!((&found["function"], &found["line"]), (&"loads".into(), &verdict["line"]));
    assert!(found["seen"].as_str().unwrap().contains("has not entered all_reduce 10"), "{found:#}");
}

#[test]
fn a_hang_is_told_once_and_the_job_goes_on() {
    let scratch = Scratch::new();
    let job = quiet("sleeps", "6");
    let run = traced(&job, &["--mem", "off", "--on-hang", "1s"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    assert_eq!(hangs(&run.run).len(), 1);
    let lines: Vec<&str> =
        run.outcome.stderr.lines().filter(|line| line.contains("the job hangs: ")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let place =
        format!("{}:{}", "goes_quiet.c", line_of(&source("programs/goes_quiet.c"), "HERE sleeps"));
    assert!(lines[0].contains(&place) && lines[0].contains("hang-1.json"), "{lines:?}");
    assert!(finding(&run.run).is_some());
}

#[test]
fn a_job_that_evaluates_compiles_or_writes_a_checkpoint_does_not_hang() {
    for how in ["computes", "compiles", "writes", "begins"] {
        let scratch = Scratch::new();
        let run = traced(&quiet(how, "5"), &["--mem", "off", "--on-hang", "2s,stop"], &scratch);
        assert_eq!(run.outcome.code, Some(0), "{how}: {:?}", run.outcome);
        assert_eq!(hangs(&run.run), [] as [Value; 0], "{how}");
        assert_eq!(finding(&run.run), None, "{how}");
    }
}

#[test]
fn stop_ends_a_job_that_hangs_by_a_signal() {
    let options = ["--mem", "off", "--on-hang", "1s,stop"];
    let scratch = Scratch::new();
    let run = traced(&quiet("sleeps", "600"), &options, &scratch);
    assert_eq!(run.outcome.signal, Some(libc::SIGTERM), "{:?}", run.outcome);
    assert!(run.outcome.stderr.contains("the job hangs, so tprof ends it: "), "{:?}", run.outcome);
    assert!(finding(&run.run).is_some());
    tprof(["rm", "--yes"]).arg(&run.run).run_in(scratch.path()).expect_code(0);
    assert!(!run.run.exists(), "the file about the hang belongs to the run");
    let scratch = Scratch::new();
    let run = traced(&quiet("stays", "600"), &options, &scratch);
    assert_eq!(run.outcome.signal, Some(libc::SIGKILL), "{:?}", run.outcome);
}

#[test]
fn a_job_that_ends_in_order_when_it_is_stopped_still_has_a_status_of_failure() {
    let scratch = Scratch::new();
    let script =
        format!("trap 'exit 0' TERM; '{}' sleeps 600 & wait", program("goes_quiet").display());
    let run = traced(&Job::sh(&script), &["--mem", "off", "--on-hang", "1s,stop"], &scratch);
    assert_eq!(run.outcome.code, Some(128 + libc::SIGTERM), "{:?}", run.outcome);
}

#[test]
fn a_bad_time_is_refused_with_an_example() {
    for bad in ["soon", "10ms", "5m,kill"] {
        let refused = tprof(["run", "--on-hang", bad, "true"]).run_in(Scratch::new().path());
        assert_eq!(refused.code, Some(125), "{bad}: {refused:?}");
        assert!(refused.stderr.contains("--on-hang"), "{refused:?}");
    }
}
