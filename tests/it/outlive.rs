//! Processes that outlive the command are reported by name, or followed to their ends.

use serde_json::Value;
use std::path::{Path, PathBuf};
use tprof_tests::{
    EXACT, Job, Kind, Live, Scratch, build, kill, memory_report, need_some, program, report,
    run_info, tprof, traced_job, wait_until,
};

/// A job that leaves a daemon, the file that lets the daemon go on, and the file that it writes
/// when it is done.
struct Daemon {
    job: Job,
    go: PathBuf,
    done: PathBuf,
}

impl Daemon {
    fn of(program: PathBuf, scratch: &Scratch) -> Daemon {
        let (go, done) = (scratch.join("go"), scratch.join("done"));
        let job = Job::new(program).arg(&go).arg(&done);
        Daemon { job, go, done }
    }

    fn let_go(&self) {
        std::fs::write(&self.go, "").unwrap();
    }

    fn wait_until_done(&self) {
        wait_until("the daemon is done", || self.done.exists());
    }
}

/// Returns the entries in which the run says that it lacks the later events of a process.
fn survivors(run: &Path) -> Vec<Value> {
    let info = run_info(run, |info| info["finished"] == true);
    let blind = info["completeness"]["blind"].as_array().unwrap().iter();
    blind.filter(|entry| entry["what"] == "later events").cloned().collect()
}

#[track_caller]
fn assert_survivor_is_named(run: &Path) {
    let survivors = survivors(run);
    assert_eq!(survivors.len(), 1, "{survivors:?}");
    let process = survivors[0]["process"].as_str().unwrap();
    let why = survivors[0]["why"].as_str().unwrap();
    assert!(why.contains("still running when recording ended"), "{why}");
    let report = report(run);
    let rows = report.processes("outlives").into_iter();
    let pids: Vec<_> = rows.map(|row| row["pid"].to_string()).collect();
    let (pid, name) = process.split_once(' ').unwrap();
    assert!(pids.contains(&pid.to_owned()) && name == "outlives", "{process} of {pids:?}");
    assert_eq!(report.0["completeness"]["complete"], false);
    let text = tprof(["report"]).arg(run).run_in(run.parent().unwrap()).expect_code(0).stdout;
    assert!(text.contains("NOT COMPLETE") && text.contains("still running when"), "{text}");
}

#[test]
fn a_daemon_that_still_runs_is_reported() {
    for kind in [Kind::Plain, Kind::Static] {
        let scratch = Scratch::new();
        let run = scratch.run();
        let daemon = Daemon::of(need_some!(build("outlives", kind)), &scratch);
        let traced = tprof(["run", "--mem", "exact", "-o"]).arg(&run).arg("--");
        let words = [&build("outlives", kind).unwrap(), &daemon.go, &daemon.done];
        let outcome = traced.args(words).run_in(scratch.cwd()).expect_code(3);
        let stderr = &outcome.stderr;
        assert!(stderr.contains("still running when recording ended"), "{stderr}");
        assert!(stderr.contains("--follow"), "{stderr}");
        assert_survivor_is_named(&run);
        daemon.let_go();
        daemon.wait_until_done();
    }
}

#[test]
fn followed_daemons_are_recorded_to_their_ends() {
    for kind in [Kind::Plain, Kind::Static] {
        let scratch = Scratch::new();
        let run = scratch.run();
        let daemon = Daemon::of(need_some!(build("outlives", kind)), &scratch);
        let job = traced_job(&daemon.job, &["--mem", "exact", "--follow"], &run);
        let live = Live::start(&job, scratch.path());
        wait_until_following(&run);
        daemon.let_go();
        let outcome = live.finish();
        assert!(daemon.done.exists(), "{kind:?}: {outcome:?}");
        assert_eq!((outcome.code, &*outcome.stderr), (Some(3), ""), "{kind:?}");
        assert_eq!(survivors(&run), [] as [Value; 0], "{kind:?}");
        if kind == Kind::Plain {
            assert_eq!(memory_report(&run).in_victims("allocations"), 4000);
            assert_eq!(report(&run).0["completeness"]["complete"], true);
        }
    }
}

/// Waits until the command of a live run has ended.
fn wait_until_following(run: &Path) {
    wait_until("the run follows what was left", || {
        let status = tprof(["ctl", "status", "--json"]).arg(run).run_in(run.parent().unwrap());
        let status: Value = serde_json::from_str(&status.stdout).unwrap_or_default();
        status["following"] == true
    });
}

#[test]
fn a_signal_ends_the_following_and_not_the_daemon() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let scratch = Scratch::new();
        let run = scratch.run();
        let daemon = Daemon::of(program("outlives"), &scratch);
        let live = Live::start(&traced_job(&daemon.job, &["--follow"], &run), scratch.path());
        wait_until_following(&run);
        assert!(kill(live.pid(), signal));
        live.finish().expect_code(3);
        assert_survivor_is_named(&run);
        daemon.let_go();
        daemon.wait_until_done();
    }
}

#[test]
fn following_ends_with_recording() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let daemon = Daemon::of(program("outlives"), &scratch);
    let options = ["--follow", "--duration", "500ms"];
    traced_job(&daemon.job, &options, &run).run_in(scratch.cwd()).expect_code(3);
    assert_survivor_is_named(&run);
    daemon.let_go();
    daemon.wait_until_done();
}

#[test]
fn without_daemons_following_changes_nothing() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let job = Job::sh("\"$1\" 0; exec \"$1\" 5").arg(program("short")).env("TPROF_FOLLOW", "1");
    traced_job(&job, EXACT, &run).run_in(scratch.cwd()).expect_code(5);
    assert_eq!(survivors(&run), [] as [Value; 0]);
    let dry = tprof(["run", "--follow", "--dry-run", "--", "true"]).run_in(scratch.cwd());
    assert!(dry.stdout.contains("follow = true  # --follow"), "{dry:?}");
}
