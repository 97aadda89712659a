//! Signals that are sent to tprof or typed at the terminal reach the job exactly once.

use std::time::Duration;
use tprof_tests::{EXACT, Job, Kind, Live, Scratch, build, kill, program, traced_job};

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIGUSR2: i32 = 12;
const SIGTERM: i32 = 15;
const SIGWINCH: i32 = 28;
/// SIGRTMIN + 2, for which nix has no name.
const REAL_TIME: i32 = 36;

fn live(job: &Job, scratch: &Scratch) -> Live {
    Live::start(&traced_job(job, EXACT, &scratch.run()), &scratch.cwd())
}

#[test]
fn a_signal_sent_to_tprof_reaches_the_job_once() {
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH, SIGUSR2] {
        let scratch = Scratch::new();
        let mut live = live(&Job::new(program("signal_counter")), &scratch);
        live.wait_for("ready");
        assert!(kill(live.pid(), signal));
        live.wait_for(&format!("got {signal:02}"));
        // If there were a second delivery, it would come within this time.
        std::thread::sleep(Duration::from_millis(200));
        let outcome = live.finish();
        assert_eq!(outcome.code, Some(49), "{outcome:?}");
        let got = outcome.stdout.lines().filter(|line| line.starts_with("got")).count();
        assert_eq!(got, 1, "signal {signal}: {outcome:?}");
    }
}

#[test]
fn a_signal_that_ends_the_job_ends_tprof_the_same_way() {
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, REAL_TIME] {
        let scratch = Scratch::new();
        let mut live = live(&Job::new(program("steady")), &scratch);
        live.wait_for("ready");
        assert!(kill(live.pid(), signal));
        let outcome = live.ended();
        assert_eq!((outcome.signal, outcome.code), (Some(signal), None), "{outcome:?}");
    }
}

#[test]
fn a_job_that_outlives_a_signal_is_waited_for() {
    let scratch = Scratch::new();
    let job = Job::sh("trap 'echo caught' TERM; echo ready; read line; echo end; exit 3");
    let mut live = live(&job, &scratch);
    live.wait_for("ready");
    assert!(kill(live.pid(), SIGTERM));
    live.wait_for("caught");
    let outcome = live.finish();
    assert_eq!(outcome.code, Some(3), "{outcome:?}");
    assert!(outcome.stdout.ends_with("end\n"), "{outcome:?}");
}

/// Types the same keys at a native job and at a traced one, and compares the effects.
#[track_caller]
fn typed(what: &str, wanted: &[&str]) {
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/at_terminal.py");
    let job = Job::new(build("signal_counter", Kind::Plain).unwrap()).arg("tty");
    let scratch = Scratch::new();
    let terminal = ["python3", driver, what];
    let native = job.clone().under(terminal).run_in(scratch.cwd());
    for line in wanted {
        assert!(native.stdout.contains(line), "native, {line}: {native:?}");
    }
    let run = scratch.run();
    let traced = traced_job(&job.under(terminal), EXACT, &run).run_in(scratch.cwd());
    assert!(traced == native, "{what}\n=== native: {native:?}\n=== traced: {traced:?}");
}

#[test]
fn an_interrupt_typed_reaches_the_job_once() {
    typed("interrupt", &["INT=1", "exited 49"]);
}

#[test]
fn a_quit_typed_reaches_the_job_once() {
    typed("quit", &["QUIT=1", "exited 49"]);
}

#[test]
fn a_suspended_job_stops_and_goes_on() {
    typed("suspend", &["victim stopped", "stopped by 20", "CONT=30", "exited 49"]);
}
