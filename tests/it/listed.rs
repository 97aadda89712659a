//! Tests of several runs in a directory: a report without a run uses the newest, `tprof ls` lists
//! the runs, and `tprof rm` deletes them.

use serde_json::Value;
use std::path::Path;
use tprof_tests::{
    Job, Live, Scratch, assert_refused, program, run_info, tprof, traced_job, wait_until,
};

/// Records `true` into a directory of the scratch folder.
fn record(scratch: &Scratch, name: &str) {
    let outcome = traced_job(&Job::new("true"), &[], &scratch.join(name)).run_in(scratch.path());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

fn listed(directory: &Path) -> Vec<Value> {
    let outcome = tprof(["ls", "--json"]).run_in(directory).expect_code(0);
    let list: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(list["version"], 1);
    list["runs"].as_array().unwrap().clone()
}

#[test]
fn a_report_without_a_run_uses_the_newest_and_names_it() {
    let scratch = Scratch::new();
    let nothing = tprof(["report"]).run_in(scratch.cwd());
    assert_refused(&nothing, &["no run given", "there is no run in this directory", "tprof run"]);
    // The newest run is neither the first nor the last by name.
    for name in ["run-b", "run-c", "run-a"] {
        record(&scratch, name);
    }
    std::fs::create_dir(scratch.join("no-run")).unwrap();
    for words in [&["report"][..], &["report", "memory"]] {
        let outcome = tprof(words).run_in(scratch.path()).expect_code(0);
        assert!(outcome.stdout.contains(": run-a\n"), "{outcome:?}");
        let note = "note: report of run-a, the newest of 3 runs in this directory\n";
        assert_eq!(outcome.stderr, note);
    }
    let inside = tprof(["report"]).run_in(scratch.join("run-b")).expect_code(0);
    assert!(inside.stdout.contains(": run-b\n"), "{inside:?}");
    assert!(inside.stderr.contains("the run in this directory"), "{inside:?}");
    let either = tprof(["report", "run-c", "memory"]).run_in(scratch.path()).expect_code(0);
    assert!(either.stdout.starts_with("tprof memory: run-c\n"), "{either:?}");
}

#[test]
fn runs_are_listed_newest_first_with_their_facts() {
    let scratch = Scratch::new();
    record(&scratch, "run-b");
    record(&scratch, "run-a");
    std::fs::create_dir(scratch.join("no-run")).unwrap();
    let runs = listed(scratch.path());
    let paths: Vec<&str> = runs.iter().map(|run| run["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["run-a", "run-b"]);
    let bytes: u64 = std::fs::read_dir(scratch.join("run-a"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    for (key, value) in [
        ("command", serde_json::json!(["true"])),
        ("state", "finished".into()),
        ("ranks", 1.into()),
        ("lost", 0.into()),
        ("bytes", bytes.into()),
    ] {
        assert_eq!(runs[0][key], value, "{:#?}", runs[0]);
    }
    assert!(runs[0]["wall_ns"].as_u64().is_some_and(|ns| ns > 0), "{:#?}", runs[0]);
    let text = tprof(["ls"]).run_in(scratch.path()).expect_code(0).stdout;
    assert!(text.lines().any(|line| line.ends_with("run-a  true")), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let unread = tprof(["ls", "--no-findings", "--json"]).run_in(scratch.path()).expect_code(0);
    assert!(unread.stdout.contains("\"worst_finding_missing\": \"--no-findings\""), "{unread:?}");
    let none = tprof(["ls", "no-run"]).run_in(scratch.path()).expect_code(0);
    assert_eq!(none.stdout, "no run in no-run\n");
    assert_refused(&tprof(["ls", "nowhere"]).run_in(scratch.path()), &["cannot list `nowhere`"]);
}

#[test]
fn only_files_of_the_run_are_deleted() {
    let scratch = Scratch::new();
    record(&scratch, "run-a");
    record(&scratch, "run-b");
    let unasked = tprof(["rm", "run-a"]).run_in(scratch.path());
    assert_refused(&unasked, &["nothing was deleted", "--yes"]);
    assert!(scratch.join("run-a/run.json").exists());
    let unknown = tprof(["rm", "--yes", "run-a", "run-d"]).run_in(scratch.path());
    assert_refused(&unknown, &["`run-d` is not a run", "tprof rm run-"]);
    assert!(
        scratch.join("run-a/run.json").exists(),
        "run-a was deleted although run-d is not a run"
    );
    let other = scratch.join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("thesis.tex"), "years of work").unwrap();
    assert_refused(&tprof(["rm", "--yes", "other"]).run_in(scratch.path()), &["is not a run"]);
    std::fs::write(scratch.join("run-a/notes.txt"), "mine").unwrap();
    std::fs::create_dir(scratch.join("run-a/csv")).unwrap();
    std::fs::write(scratch.join("run-a/csv/own.xlsx"), "mine").unwrap();
    let kept = tprof(["rm", "--yes", "run-a"]).run_in(scratch.path()).expect_code(0);
    assert!(kept.stderr.contains("the directory stays"), "{kept:?}");
    assert!(kept.stderr.contains("notes.txt") && kept.stderr.contains("csv"), "{kept:?}");
    let mut left: Vec<_> = std::fs::read_dir(scratch.join("run-a"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["csv", "notes.txt"]);
    assert!(scratch.join("run-a/csv/own.xlsx").exists());
    tprof(["export", "--to", "chrome", "run-b"]).run_in(scratch.path()).expect_code(0);
    tprof(["rm", "--yes", "run-b"]).run_in(scratch.path()).expect_code(0);
    assert!(!scratch.join("run-b").exists());
    assert!(other.join("thesis.tex").exists());
}

#[test]
fn a_live_run_is_listed_as_running_and_not_deleted() {
    let scratch = Scratch::new();
    let run = scratch.join("live");
    let job = Job::new(program("steady")).arg("200");
    let mut live = Live::start(&traced_job(&job, &[], &run), &scratch.cwd());
    live.wait_for("ready");
    run_info(&run, |info| info["session"].as_str().is_some_and(|path| !path.is_empty()));
    let runs = listed(scratch.path());
    assert_eq!(runs[0]["state"], "running", "{runs:#?}");
    let refused = tprof(["rm", "--yes", "live"]).run_in(scratch.path());
    assert_refused(&refused, &["is in progress"]);
    live.finish();
    wait_until("the run to end", || listed(scratch.path())[0]["state"] == "finished");
    tprof(["rm", "--yes", "live"]).run_in(scratch.path()).expect_code(0);
    assert!(!run.exists());
}

#[test]
fn files_that_are_not_of_a_run_are_not_listed_or_deleted() {
    let scratch = Scratch::new();
    let project = scratch.join("project");
    std::fs::create_dir_all(project.join("csv")).unwrap();
    let users =
        ["run-config.json", "csv/dataset.csv", "report.html", "rank-table.trace.json.txt", "lock"];
    for name in users {
        std::fs::write(project.join(name), r#"{"lr": 0.1}"#).unwrap();
    }
    let are_there = || users.iter().all(|name| project.join(name).exists());
    let refused = tprof(["rm", "--yes", "project"]).run_in(scratch.path());
    assert_refused(&refused, &["`project` is not a run"]);
    assert!(are_there());
    assert_refused(&tprof(["report"]).run_in(&project), &["no run given"]);
    let forced = traced_job(&Job::new("true"), &["--force"], &project).run_in(scratch.path());
    assert_eq!(forced.code, Some(0), "{forced:?}");
    assert!(are_there() && !project.join(".tprof-lock").exists());
    for format in ["csv", "parquet", "tensorboard"] {
        record(&scratch, "run-a");
        tprof(["export", "--to", format, "run-a"]).run_in(scratch.path()).expect_code(0);
        tprof(["rm", "--yes", "run-a"]).run_in(scratch.path()).expect_code(0);
        assert!(!scratch.join("run-a").exists(), "{format}");
    }
    record(&scratch, "run-a");
    std::os::unix::fs::symlink("run-a", scratch.join("link")).unwrap();
    let linked = tprof(["rm", "--yes", "link"]).run_in(scratch.path());
    assert_refused(&linked, &["symbolic link"]);
    let path = scratch.join("run-a/run.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let newer = text.replacen("\"version\": 2", "\"version\": 9", 1);
    assert_ne!(text, newer);
    std::fs::write(&path, newer).unwrap();
    let refused = tprof(["rm", "--yes", "run-a"]).run_in(scratch.path());
    assert_refused(&refused, &["may be in progress"]);
}

#[test]
fn a_long_command_hides_no_run() {
    let scratch = Scratch::new();
    let name = "tprof-a-name-of-a-run-which-is-long";
    let job = Job::new("true").arg("an-argument-".repeat(20));
    traced_job(&job, &[], &scratch.join(name)).run_in(scratch.path()).expect_code(0);
    let text = tprof(["ls"]).run_in(scratch.path()).expect_code(0).stdout;
    assert!(text.contains(name), "{text}");
}

#[test]
fn a_kind_of_report_is_a_command() {
    let scratch = Scratch::new();
    record(&scratch, "run");
    let print =
        |words: &[&str]| tprof(words).arg("run").run_in(scratch.path()).expect_code(0).stdout;
    assert_eq!(print(&["findings"]), print(&["report", "findings"]));
    assert_eq!(print(&["memory", "--json"]), print(&["report", "memory", "--json"]));
}
