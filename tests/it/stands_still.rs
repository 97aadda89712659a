//! Tests of a collector that stops and resumes: by a signal, in a suspended machine, or in a frozen
//! cgroup. Recording must then go on, and unrecorded events must be counted by process.

use serde_json::Value;
use std::time::Duration;
use tprof_tests::{
    DEFAULT, Job, Live, Report, Scratch, assert_refused, kill, memory_report, program, report,
    run_info, tprof, traced_job, wait_until,
};

/// A time longer than any thread waits for a collector.
const LONG: Duration = Duration::from_millis(2500);
const PAIRS: i64 = 150_000;
const THREADS: i64 = 2;
// What is lost is counted in records: those of calls on files would be among them.
const EXACT: &[&str] = &["--mem", "exact", "--io", "off"];
const EXACT_DROP: &[&str] = &["--mem", "exact", "--io", "off", "--on-full", "drop"];

fn bursts() -> Job {
    Job::new(program("bursts")).args([PAIRS.to_string(), THREADS.to_string()])
}

/// A job under tprof, and the pid of its collector.
struct Stopped {
    live: Live,
    collector: u32,
    run: std::path::PathBuf,
    scratch: Scratch,
}

impl Stopped {
    /// Starts a job that prints `ready`.
    fn start(job: &Job, options: &[&str]) -> Stopped {
        let mut started = Stopped::start_silent(job, options);
        started.live.wait_for("ready");
        started
    }

    fn start_silent(job: &Job, options: &[&str]) -> Stopped {
        let scratch = Scratch::new();
        let run = scratch.run();
        let live = Live::start(&traced_job(job, options, &run), &scratch.cwd());
        let has_begun = |info: &Value| info["processes"].as_array().is_some_and(|p| !p.is_empty());
        let info = run_info(&run, has_begun);
        let collector = info["collector_pid"].as_u64().unwrap() as u32;
        Stopped { live, collector, run, scratch }
    }

    /// Stops each thread of the collector, which takes a while on a busy machine.
    fn stop(&self) {
        assert!(kill(self.collector, libc::SIGSTOP));
        let tasks = format!("/proc/{}/task", self.collector);
        let is_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        };
        wait_until("the collector stands still", || {
            std::fs::read_dir(&tasks).unwrap().all(|task| is_stopped(task.unwrap()))
        });
    }

    /// Stops the collector for longer than any thread waits for it, and runs `meanwhile` before it
    /// resumes.
    fn stand_still(&mut self, meanwhile: impl FnOnce(&mut Live)) {
        self.stop();
        std::thread::sleep(LONG);
        meanwhile(&mut self.live);
        assert!(kill(self.collector, libc::SIGCONT));
        self.is_back();
    }

    /// Waits until the collector works again.
    fn is_back(&self) -> Value {
        let status = tprof(["ctl", "status", "--json"]).arg(&self.run);
        let status = status.run_in(self.scratch.path()).expect_code(0);
        serde_json::from_str(&status.stdout).unwrap()
    }

    fn finish(self) -> (Report, Report) {
        let outcome = self.live.finish();
        assert_eq!(outcome.code, Some(48), "{outcome:?}");
        (report(&self.run), memory_report(&self.run))
    }
}

/// Returns the numbers of recorded events and of lost records.
fn seen(report: &Report) -> (i64, i64) {
    (report.total("allocations") + report.total("frees"), report.lost_of("records"))
}

fn in_burst(memory: &Report, name: &str) -> i64 {
    let sites = memory.sites(|frame| frame.starts_with(name));
    sites.iter().map(|site| site["allocations"].as_i64().unwrap()).sum()
}

/// Returns the number of events that a run of the same commands without an interruption records.
fn undisturbed(commands: &str, options: &[&str]) -> i64 {
    let mut started = Stopped::start(&bursts(), options);
    for command in commands.chars() {
        started.live.obey(&command.to_string());
    }
    let (report, _) = started.finish();
    let (recorded, lost) = seen(&report);
    assert_eq!(lost, 0, "{}", report.0["completeness"]);
    recorded
}

fn why_lost(report: &Report) -> String {
    report.0["completeness"]["losses"].to_string()
}

#[test]
fn recording_resumes_with_the_collector_and_losses_are_counted() {
    let wanted = undisturbed("123", EXACT);
    for options in [EXACT, EXACT_DROP] {
        let mut started = Stopped::start(&bursts(), options);
        started.live.obey("1");
        started.is_back();
        started.stand_still(|live| live.obey("2"));
        started.live.obey("3");
        let (report, memory) = started.finish();
        let (recorded, lost) = seen(&report);
        assert!(lost > 0, "{options:?}: {}", report.0["completeness"]);
        assert_eq!(recorded + lost, wanted, "{options:?}: {}", report.0["completeness"]);
        assert!(why_lost(&report).contains("stood still"), "{}", why_lost(&report));
        let of_job: i64 =
            report.processes("bursts").iter().map(|p| p["lost"].as_i64().unwrap()).sum();
        assert_eq!(of_job, lost, "by process: {}", report.0["processes"]);
        // Threads wait for a live collector, so the stacks of `victim_third` are complete, although
        // they first occur after the stop.
        let third = in_burst(&memory, "victim_third");
        match options == EXACT {
            true => assert_eq!(third, PAIRS * (THREADS + 1), "{}", report.0["completeness"]),
            false => assert!(third > 0, "{}", report.0["completeness"]),
        }
        assert!(in_burst(&memory, "victim_first") > 0);
    }
}

#[test]
fn a_collector_may_stand_still_more_than_once() {
    let wanted = undisturbed("1231", EXACT);
    let mut started = Stopped::start(&bursts(), EXACT);
    started.live.obey("1");
    started.stand_still(|live| live.obey("2"));
    started.live.obey("3");
    started.stand_still(|live| live.obey("1"));
    let (report, memory) = started.finish();
    let (recorded, lost) = seen(&report);
    assert_eq!(recorded + lost, wanted, "{}", report.0["completeness"]);
    assert_eq!(in_burst(&memory, "victim_third"), PAIRS * (THREADS + 1));
}

#[test]
fn counters_go_on_while_the_collector_stands_still() {
    let wanted = undisturbed("123", DEFAULT);
    let mut started = Stopped::start(&bursts(), DEFAULT);
    started.live.obey("1");
    started.stand_still(|live| live.obey("2"));
    started.live.obey("3");
    let (report, _) = started.finish();
    assert_eq!(seen(&report).0, wanted, "{}", report.0["completeness"]);
}

#[test]
fn stacks_first_seen_while_the_collector_is_stopped_are_recorded() {
    let mut started = Stopped::start(&bursts(), EXACT);
    // The rings are full when victim_third is met for the first time.
    started.stand_still(|live| {
        live.obey("1");
        live.obey("3");
    });
    started.live.obey("3");
    let (report, memory) = started.finish();
    let third = in_burst(&memory, "victim_third");
    assert_eq!(third, PAIRS * (THREADS + 1), "{}", report.0["completeness"]);
}

#[test]
fn a_stopped_collector_that_is_killed_lets_the_job_go_on() {
    let mut started = Stopped::start(&bursts(), EXACT);
    started.stop();
    started.live.obey("1");
    assert!(kill(started.collector, libc::SIGKILL));
    for command in ["2", "c", "3"] {
        started.live.obey(command);
    }
    let Stopped { live, .. } = started;
    let outcome = live.finish();
    assert!(outcome.stdout.ends_with("end\n"), "{outcome:?}");
}

#[test]
fn a_child_forked_while_the_collector_is_stopped_is_counted() {
    let mut started = Stopped::start(&bursts(), EXACT);
    started.live.obey("1");
    started.stand_still(|live| live.obey("c"));
    started.live.obey("c");
    let (report, memory) = started.finish();
    assert_eq!(in_burst(&memory, "victim_child"), 100, "the second child is recorded");
    let why = report.blind("child of").unwrap_or_default();
    assert!(why.contains("stood still"), "{}", report.0["completeness"]);
}

#[test]
fn a_program_started_meanwhile_is_recorded_after_the_stop() {
    let job = Job::sh("read line; exec \"$@\"").args([program("bursts").as_os_str()]).arg("1000");
    let mut started = Stopped::start_silent(&job, EXACT);
    started.stop();
    started.live.send("go\n");
    started.live.wait_for("ready");
    started.live.obey("1");
    assert!(kill(started.collector, libc::SIGCONT));
    started.is_back();
    // A process that got no answer tries again every few milliseconds, at an event. The test has to
    // let time pass, because a try without an answer leaves no trace.
    std::thread::sleep(Duration::from_millis(200));
    for command in ["2", "3"] {
        started.live.obey(command);
        std::thread::sleep(Duration::from_millis(200));
    }
    let (report, memory) = started.finish();
    assert_eq!(in_burst(&memory, "victim_third"), 3000, "{}", report.0["completeness"]);
    let process = report.processes("bursts 1000");
    let process = process.last().unwrap();
    assert!(report.blind("bursts").is_none(), "{}", report.0["completeness"]);
    // The process's events until then are counted as lost, and its live bytes are unknown.
    assert!(process["lost"].as_i64() >= Some(6000), "{process}");
    assert!(why_lost(&report).contains("stood still"), "{}", why_lost(&report));
    assert!(report.only()["live_at_exit_bytes"].is_null(), "{}", report.only());
}

#[test]
fn a_program_that_ran_while_the_collector_was_stopped_is_named() {
    let job = Job::sh("read line; \"$1\" exit 1000 600; echo done; read line; exit 48")
        .arg(program("leave"));
    let mut started = Stopped::start_silent(&job, EXACT);
    started.stop();
    started.live.send("go\n");
    started.live.wait_for("done");
    assert!(kill(started.collector, libc::SIGCONT));
    started.is_back();
    let run = started.run.clone();
    let (report, _) = started.finish();
    let why = report.blind("leave").unwrap_or_default();
    assert!(why.contains("stood still"), "{}: {}", run.display(), report.0["completeness"]);
    let process = report.processes("leave");
    let process = process.last().unwrap();
    assert_eq!((&process["exit_status"], &process["lost"]), (&11.into(), &Value::Null));
}

#[test]
fn ctl_reports_that_the_collector_does_not_answer() {
    let mut started = Stopped::start(&bursts(), EXACT);
    started.stop();
    let status = tprof(["ctl", "status"]).arg(&started.run).run_in(started.scratch.path());
    assert_refused(&status, &["does not answer", "stopped"]);
    assert!(kill(started.collector, libc::SIGCONT));
    started.is_back();
    started.live.obey("1");
    started.finish();
}

/// Once one wait has shown that the collector is stopped, other threads and later waits of the
/// process must not wait again.
#[test]
fn no_thread_waits_again_for_a_collector_known_to_be_stopped() {
    let mut started = Stopped::start(&bursts(), EXACT);
    started.live.obey("1");
    let before = started.is_back()["wait_ns"].clone();
    started.stand_still(|live| {
        for command in ["1", "2", "3"] {
            live.obey(command);
        }
    });
    let (report, _) = started.finish();
    // The run counts the same ticks before and after; only the assumed length of a tick may differ.
    let more = report.0["overhead"]["wait_ns"].as_f64().unwrap() - before.as_f64().unwrap();
    assert!(more.abs() < 1e6, "{more} ns more: {}", report.0["overhead"]);
}

/// Each jump out of a hook leaves a reservation in a full ring.
#[test]
fn a_job_that_jumps_out_of_hooks_of_a_full_ring_goes_on() {
    let job = Job::new(program("handler_jump")).arg("commands");
    let mut started = Stopped::start(&job, EXACT_DROP);
    started.stop();
    started.live.obey("1");
    assert!(kill(started.collector, libc::SIGCONT));
    started.is_back();
    started.live.obey("2");
    let outcome = started.live.finish();
    assert_eq!((outcome.code, outcome.signal), (Some(0), None), "{outcome:?}");
    assert!(report(&started.run).lost_of("records") > 0);
}
