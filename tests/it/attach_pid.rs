//! `tprof attach` samples a process that it did not launch, and changes nothing in it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use tprof_tests::{
    Job, Live, Refused, Scratch, assert_refused, children_of, document, kill, need, program,
    run_info, skip, state_of, tprof, tprof_at, traced_job, wait_until,
};

/// A running victim, which is killed at the end of its test.
struct Running(Child);

impl Running {
    fn new(command: &mut Command) -> Running {
        Running(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_running_process_and_its_children_are_sampled_and_left_alone() {
    let scratch = Scratch::new();
    // The child ends when its parent has ended.
    let script = "(while kill -0 $$; do :; done) 2>/dev/null & while :; do :; done";
    let mut victim = Running::new(Command::new("/bin/sh").args(["-c", script]));
    wait_until("the shell has a child", || !children_of(victim.0.id()).is_empty());
    let run = scratch.path().join("run");
    let job = tprof(["attach", "--duration", "600ms", "--sample-rate", "499", "-q", "-o"]);
    let outcome = job.arg(&run).arg(victim.pid()).run_in(scratch.path());
    if outcome.stderr.contains("perf_event_open") {
        return skip(Refused::PerfEvents);
    }
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(victim.lives());
    let threads = document("threads", &run);
    let rows = threads["tables"]["threads"].as_array().unwrap();
    // On a busy machine the processes mostly wait for a core.
    let busy = rows.iter().filter(|row| {
        row["running_ns"].as_f64().unwrap() + row["ready_ns"].as_f64().unwrap() > 0.3e9
    });
    assert_eq!(busy.count(), 2, "the shell and its child are busy: {rows:#?}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", victim.pid())).unwrap();
    assert!(status.contains("TracerPid:\t0"), "{status}");
    let attached = |options: &[&str]| {
        let run = scratch.run();
        let job = tprof(["attach", "--duration", "200ms", "-o"]).arg(&run).args(options);
        let outcome = job.arg(victim.pid()).run_in(scratch.path()).expect_code(0);
        let threads = document("threads", &run);
        (outcome.stderr, threads["tables"]["threads"].as_array().unwrap().len())
    };
    let (stderr, threads) = attached(&[]);
    assert!(stderr.contains("and 1 descendant") && threads == 2, "{threads} {stderr}");
    let (stderr, threads) = attached(&["--alone"]);
    assert!(!stderr.contains("descend") && threads == 1, "{threads} {stderr}");
}

#[test]
fn a_switch_on_the_command_line_overrides_its_variable() {
    let scratch = Scratch::new();
    let victim = Running::new(Command::new("sleep").arg("1000"));
    let run = scratch.path().join("run");
    let job = tprof(["attach", "--duration", "200ms", "--no-quiet", "--no-redact", "-o"]).arg(&run);
    let job = job.arg(victim.pid()).env("TPROF_QUIET", "1").env("TPROF_REDACT", "1");
    let outcome = job.run_in(scratch.path());
    if outcome.stderr.contains("perf_event_open") {
        return skip(Refused::PerfEvents);
    }
    assert!(outcome.stderr.contains("sampling process"), "{outcome:?}");
    assert_eq!(run_info(&run, |info| info["finished"] == true)["options"]["redact"], false);
}

#[test]
fn two_samplers_of_one_process_measure_the_same_as_one() {
    let scratch = Scratch::new();
    let (first, second) = (scratch.join("first"), scratch.join("second"));
    let job = traced_job(&Job::new(program("naps")), &["--activities", "cpu"], &first);
    let mut live = Live::start(&job, scratch.path());
    live.wait_for("ready");
    let seen = |info: &serde_json::Value| !info["processes"].as_array().unwrap().is_empty();
    let pid = run_info(&first, seen)["processes"][0]["pid"].to_string();
    let attach = tprof(["attach", "--duration", "1500ms", "-q", "-o"]).arg(&second).arg(pid);
    let outcome = attach.run_in(scratch.path());
    live.send("stop");
    live.finish().expect_code(0);
    if outcome.stderr.contains("perf_event_open") {
        return skip(Refused::PerfEvents);
    }
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for run in [&first, &second] {
        let threads = document("threads", run);
        let rows = threads["tables"]["threads"].as_array().unwrap();
        let ran_ns: f64 = rows.iter().filter_map(|row| row["running_ns"].as_f64()).sum();
        // The program sleeps some 100 times a second, and runs for less than a millisecond each
        // time, so it runs for much less than 0.25 s.
        assert!(ran_ns < 0.25e9, "{}: {rows:#?}", run.display());
    }
}

#[test]
fn an_interrupt_finishes_the_run_and_is_reported() {
    let scratch = Scratch::new();
    let victim = Running::new(Command::new("sleep").arg("600"));
    let run = scratch.path().join("run");
    let mut attached = Command::new(tprof_at())
        .args(["attach", "-o"])
        .args([run.as_os_str(), victim.pid().as_ref()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(attached.stderr.take().unwrap()).lines().map(Result::unwrap);
    let begun = lines.next().unwrap_or_default();
    if !begun.contains("sampling process") {
        panic!("{begun}; {:?}", lines.collect::<Vec<_>>());
    }
    kill(attached.id(), 2);
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line.contains("tprof: finishing; a second Ctrl-C")), "{rest:?}");
    assert_eq!(attached.wait().unwrap().code(), Some(0), "{rest:?}");
    run_info(&run, |info| info["finished"] == true);
}

#[test]
fn processes_that_cannot_be_sampled_are_refused_with_the_reason() {
    let refused = |pid: &str, words: &[&str]| {
        let scratch = Scratch::new();
        let job = tprof(["attach", "--duration", "1s", pid]);
        let outcome = job.run_in(scratch.path());
        assert_refused(&outcome, words);
        let left = std::fs::read_dir(scratch.path()).unwrap().count();
        assert_eq!(left, 0, "files are left behind");
    };
    refused("0", &["number above 0"]);
    refused("-1", &["number above 0"]);
    refused("python", &["number above 0"]);
    refused("4194305", &["no such process"]);
    let uid = |path: &str| std::fs::metadata(path).unwrap().uid();
    match uid("/proc/1") == uid("/proc/self") {
        true => refused("1", &["descend from process 1", "--alone", "--force 1"]),
        false => refused("1", &["another user"]),
    }
    need!(
        std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n"),
        Refused::KernelThreads
    );
    refused("2", &["kernel thread"]);
}

#[test]
fn an_ancestor_of_tprof_is_sampled_only_with_alone_or_force() {
    let scratch = Scratch::new();
    let own = std::process::id().to_string();
    let attach = |options: &[&str]| {
        let job = tprof(["attach", "--duration", "50ms", "-q", "-o"]).arg(scratch.run());
        job.args(options).arg(&own).run_in(scratch.path())
    };
    let outcome = attach(&[]);
    assert_refused(&outcome, &["started tprof", "--alone", &format!("--force {own}")]);
    for asked in ["--alone", "--force"] {
        let outcome = attach(&[asked]);
        if outcome.stderr.contains("perf_event_open") {
            return skip(Refused::PerfEvents);
        }
        assert_eq!(outcome.code, Some(0), "{asked}: {outcome:?}");
    }
}

#[test]
fn a_zombie_is_refused() {
    let child = Command::new(program("leave")).arg("exit").stdout(Stdio::null()).spawn().unwrap();
    let mut child = Running(child);
    wait_until("the child has ended", || state_of(child.0.id()) == Some('Z'));
    let scratch = Scratch::new();
    let outcome = tprof(["attach", &child.pid()]).run_in(scratch.path());
    assert_refused(&outcome, &["has ended"]);
    let _ = child.lives();
}
