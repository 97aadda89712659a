//! Every report prints the same number of recorded events.

use serde_json::Value;
use std::collections::HashSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tprof_tests::{Job, Live, Refused, Scratch, program, report, skip, tprof, traced, traced_job};

/// Returns the numbers of events and CPU samples in a `completeness` object.
#[track_caller]
fn counted(of: &Value) -> (u64, u64) {
    let number = |key: &str| of[key].as_u64().unwrap_or_else(|| panic!("no {key} in {of}"));
    (number("recorded"), number("samples"))
}

/// Returns the counts in a sentence such as `3,397 events and 12 CPU samples recorded`.
#[track_caller]
fn stated(text: &str) -> (u64, u64) {
    let line = text.lines().find(|line| line.contains(" recorded")).unwrap_or_default();
    let line = line.split(" recorded").next().unwrap_or_default();
    let before = |unit: &str| {
        let words: Vec<&str> = line.split(unit).next()?.split_whitespace().collect();
        line.contains(unit).then(|| words.last()?.replace(',', "").parse().ok())?
    };
    let events = before(" events").or(before(" event"));
    let samples = before(" CPU samples").or(before(" CPU sample"));
    assert!(events.is_some() || samples.is_some(), "no count in {text}");
    (events.unwrap_or(0), samples.unwrap_or(0))
}

fn text(run: &Path) -> String {
    tprof(["report"]).arg(run).run_in(run.parent().unwrap()).expect_code(0).stdout
}

#[test]
fn events_and_samples_are_the_same_number_wherever_they_are_reported() {
    let scratch = Scratch::new();
    let run = scratch.run();
    // The script runs for half a second on a core: some hundred samples, with stacks of their own.
    let script = "\"$0\" exit 900 100; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let outcome = tprof(["run", "--mem", "exact", "-o"])
        .arg(&run)
        .args(["--", "sh", "-c", script])
        .arg(program("leave"))
        .run_in(scratch.cwd());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let info: Value =
        serde_json::from_slice(&std::fs::read(run.join("run.json")).unwrap()).unwrap();
    let counts = counted(&info["completeness"]);
    assert!(counts.0 >= 1000, "{counts:?}");
    assert_eq!(counted(&report(&run).0["completeness"]), counts, "the report of the run");
    let file = run.join("rank-0.tprof");
    assert_eq!(
        counted(&report(&file).0["completeness"]),
        counts,
        "the report of its only rank file"
    );
    assert_eq!(stated(&outcome.stderr), counts, "{}", outcome.stderr);
    assert_eq!(stated(&text(&run)), counts);
    assert_eq!(stated(&text(&file)), counts);
}

#[test]
fn status_of_a_live_run_counts_as_the_finished_run_does() {
    let scratch = Scratch::new();
    let run = scratch.run();
    // The job allocates, then waits for its input.
    let job = Job::sh("\"$1\" exit 900 100; echo ready; read line").arg(program("leave"));
    let mut live = Live::start(&traced_job(&job, &["--mem", "exact"], &run), &scratch.cwd());
    live.wait_for("ready");
    let status = || -> Value {
        let job = tprof(["ctl", "status", "--json"]).arg(&run);
        serde_json::from_str(&job.run_in(scratch.path()).expect_code(0).stdout).unwrap()
    };
    // The collector reads rings at intervals, so wait for it.
    let until = Instant::now() + Duration::from_secs(20);
    let mut asked = counted(&status());
    while Instant::now() < until {
        let before = std::mem::replace(&mut asked, counted(&status()));
        if before == asked && asked.0 >= 1000 {
            break;
        }
    }
    assert!(asked.0 >= 1000, "{asked:?}");
    let of_live = report(&run).0;
    assert_eq!(of_live["run"]["state"], "running");
    assert_eq!(
        counted(&of_live["completeness"]).0,
        asked.0,
        "the report counts as `ctl status` does"
    );
    live.send("\n");
    assert_eq!(live.finish().code, Some(0));
    let ended = counted(&report(&run).0["completeness"]);
    assert!(ended.0 >= asked.0 && ended.0 <= asked.0 + 100, "{asked:?}, then {ended:?}");
    assert!(ended.1 >= asked.1, "{asked:?}, then {ended:?}");
}

#[test]
fn a_child_that_leaves_at_once_is_listed_once() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("children_leave")), &[], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let info: Value =
        serde_json::from_slice(&std::fs::read(run.run.join("run.json")).unwrap()).unwrap();
    for (what, of) in [("run.json", &info), ("report", &report(&run.run).0)] {
        let rows = of["processes"].as_array().unwrap();
        let pids: HashSet<u64> = rows.iter().map(|row| row["pid"].as_u64().unwrap()).collect();
        assert_eq!(rows.len(), pids.len(), "{what}: {rows:#?}");
        assert_eq!(pids.len(), 1 + 8, "{what}: {rows:#?}");
        for row in rows {
            let command = row["command"].as_str().unwrap();
            assert!(command.contains("children_leave"), "{what}: {row}");
            assert_eq!(row["exit_status"], if row == &rows[0] { 0 } else { 7 }, "{what}: {row}");
        }
    }
}

/// A process that is killed at the end of its test.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn samples_of_attach_are_counted_as_samples() {
    let scratch = Scratch::new();
    let busy = Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn();
    let busy = Busy(busy.unwrap());
    let run = scratch.path().join("run");
    let job = tprof(["attach", "--duration", "800ms", "-o"]).arg(&run);
    let outcome = job.arg(busy.0.id().to_string()).run_in(scratch.path());
    if outcome.stderr.contains("perf_event_open") {
        return skip(Refused::PerfEvents);
    }
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let counts = counted(&report(&run).0["completeness"]);
    assert!(counts.0 == 0 && counts.1 > 0, "{counts:?}");
    assert_eq!(stated(&outcome.stderr), counts, "{}", outcome.stderr);
    // The loop is the finding, and the next command shows it.
    assert!(outcome.stderr.contains("\nfound  "), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("report findings"), "{}", outcome.stderr);
    let summary = text(&run);
    assert!(!summary.contains("0 events"), "{summary}");
    assert_eq!(stated(&summary), counts);
    let cpu = tprof(["report", "cpu"]).arg(&run).run_in(scratch.path()).expect_code(0).stdout;
    assert!(cpu.contains(&format!(" on a core, by {} samples", counts.1)), "{counts:?} in {cpu}");
}
