//! `--keep`: a run has the last part of its job, and what is kept at some moment can be written as a
//! run of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tprof_tests::{
    Job, Live, Outcome, Scratch, Traced, children_of, document, kill, program, run_info, tprof,
    traced, traced_job, wait_until,
};

fn job(steps: u32, how: &str) -> Job {
    Job::new(program("steps_on")).arg(steps.to_string()).arg(how)
}

/// Runs a job that ends as without tprof.
fn run(steps: u32, how: &str, options: &[&str], scratch: &Scratch) -> Traced {
    let run = traced(&job(steps, how), &[&["--mem", "off"], options].concat(), scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    assert!(run.outcome.stdout.ends_with(&format!("step {}\n", steps - 1)), "{:?}", run.outcome);
    run
}

/// Returns the numbers of the steps that a run has, in order. It doesn't know when the last one
/// ended.
fn steps(run: &Path) -> Vec<u64> {
    let steps = document("steps", run);
    let rows = steps["tables"]["steps"].as_array().unwrap();
    rows.iter().map(|row| row["step"].as_u64().unwrap()).collect()
}

/// Returns what a run says was left out because the user asked for that.
fn left_out(run: &Path) -> Vec<String> {
    let info = run_info(run, |_| true);
    let blind = info["completeness"]["blind"].as_array().unwrap();
    let asked = blind.iter().filter(|row| row["as_asked"] == true);
    asked.map(|row| row["why"].as_str().unwrap().to_owned()).collect()
}

fn dumps(run: &Path) -> Vec<PathBuf> {
    let dumps = (1..).map(|number| run.join(format!("dump-{number}")));
    dumps.take_while(|dump| dump.join("run.json").exists()).collect()
}

#[track_caller]
fn are_consecutive(steps: &[u64]) {
    assert!(steps.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{steps:?}");
}

/// Checks that a run of 300 steps has the last ones, and says which option left out the others.
#[track_caller]
fn has_last_steps(run: &Path, option: &str) {
    let steps = steps(run);
    are_consecutive(&steps);
    assert_eq!(steps.last(), Some(&298));
    // A step takes at least 10 ms. A little more than asked for is kept, and on a busy machine the
    // oldest part is deleted late.
    assert!((20..=200).contains(&steps.len()), "{steps:?}");
    assert_eq!(left_out(run), [option]);
}

#[test]
fn a_run_has_the_last_part_and_says_what_it_left_out() {
    let scratch = Scratch::new();
    let run = run(300, "", &["--keep", "1s"], &scratch);
    has_last_steps(&run.run, "--keep 1s");
    let summary = tprof(["report"]).arg(&run.run).run_in(scratch.path()).expect_code(0);
    assert!(summary.stdout.contains("PARTIAL, as asked"), "{}", summary.stdout);
    let entries = fs::read_dir(&run.run).unwrap().map(|entry| entry.unwrap().file_name());
    let mut entries: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
    entries.sort();
    assert_eq!(entries, ["rank-0.tprof", "run.json"]);
}

#[test]
fn a_number_of_steps_is_kept() {
    let scratch = Scratch::new();
    let run = run(300, "", &["--keep", "steps=20"], &scratch);
    has_last_steps(&run.run, "--keep steps=20");
}

#[test]
fn what_recording_cost_before_the_part_that_is_kept_is_not_of_its_steps() {
    let scratch = Scratch::new();
    let run = traced(&job(600, ""), &["--keep", "2s"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    assert_eq!(left_out(&run.run), ["--keep 2s"]);
    let summary = document("summary", &run.run);
    let parts = summary["overhead"]["step"]["parts"].as_array().unwrap();
    let heap = parts.iter().find(|part| part["part"] == "heap").unwrap();
    // A step allocates ten blocks and frees ten, and may allocate to print its number.
    let events = heap["count"].as_f64().unwrap();
    assert!((15.0..30.0).contains(&events), "{heap}");
}

#[test]
fn a_short_job_is_kept_whole() {
    // Of the second there are several segments, none of which is old.
    for (count, keep) in [(20, "60s"), (100, "10s")] {
        let scratch = Scratch::new();
        let run = run(count, "", &["--keep", keep], &scratch);
        assert_eq!(steps(&run.run), (0..u64::from(count) - 1).collect::<Vec<u64>>());
        assert_eq!(left_out(&run.run), Vec::<String>::new());
    }
}

#[test]
fn a_size_limits_the_files_at_every_moment() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let options = ["--keep", "4MiB", "--mem", "exact"];
    let mut live = Live::start(&traced_job(&job(400, "churns"), &options, &run), &scratch.cwd());
    live.wait_for("step 0");
    let kept = || {
        let within = |directory: PathBuf| {
            let files = fs::read_dir(directory).into_iter().flatten().flatten();
            files.filter_map(|file| Some(file.metadata().ok()?.len())).sum::<u64>()
        };
        let entries = fs::read_dir(&run).unwrap().flatten().map(|entry| entry.path());
        entries.filter(|path| path.is_dir()).map(within).sum::<u64>()
    };
    // A busy machine takes a while to fill the room once. Then it is overwritten for two seconds.
    let (mut most, mut until) = (0, None);
    let given_up = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until.unwrap_or(given_up) {
        most = most.max(kept());
        if most > 3 << 20 && until.is_none() {
            until = Some(Instant::now() + Duration::from_secs(2));
        }
    }
    let outcome = live.finish();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    // The sizes of the files are not of one moment.
    assert!(most <= (4 << 20) * 11 / 10, "{most}");
    assert!(most > 3 << 20, "{most}");
    assert_eq!(left_out(&run), ["--keep 4MiB"]);
    let whole = fs::metadata(run.join("rank-0.tprof")).unwrap().len();
    assert!(whole <= 5 << 20, "{whole}");
    assert_eq!(run_info(&run, |_| true)["completeness"]["lost"], 0);
}

fn live(steps: u32, how: &str, options: &[&str], scratch: &Scratch) -> (Live, PathBuf) {
    let run = scratch.run();
    let options = [&["--mem", "off"], options].concat();
    let job = traced_job(&job(steps, how), &options, &run);
    (Live::start(&job, &scratch.cwd()), run)
}

fn dump(run: &Path, scratch: &Scratch) -> Outcome {
    tprof(["ctl", "dump", "--why", "for the test"]).arg(run).run_in(scratch.path())
}

#[test]
fn what_a_live_run_keeps_is_written_on_request_as_often_as_one_likes() {
    let scratch = Scratch::new();
    let (mut live, run) = live(600, "", &["--keep", "1s"], &scratch);
    for (number, step) in [(1, 150_u64), (2, 300)] {
        live.wait_for(&format!("step {step}"));
        let written = dump(&run, &scratch).expect_code(0);
        let path = run.join(format!("dump-{number}"));
        assert_eq!(written.stdout, format!("tprof report {}\n", path.display()));
        let steps = steps(&path);
        are_consecutive(&steps);
        assert!(*steps.last().unwrap() >= step - 1, "{steps:?}");
        assert!(steps[0] > 0, "{steps:?}");
        assert_eq!(left_out(&path), ["--keep 1s"]);
        let notes = &run_info(&path, |_| true)["notes"];
        assert!(notes[0].as_str().unwrap().ends_with("for the test"), "{notes}");
    }
    let status = tprof(["ctl", "status", "--json"]).arg(&run).run_in(scratch.path());
    let status: Value = serde_json::from_str(&status.expect_code(0).stdout).unwrap();
    assert_eq!(status["keep"], "--keep 1s");
    let kept_ns = status["kept_ns"].as_f64().unwrap();
    assert!(kept_ns >= 1e9 && kept_ns < status["seconds"].as_f64().unwrap() * 1e9, "{status}");
    let outcome = live.finish();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(steps(&run).last(), Some(&598), "the run goes on");
    tprof(["rm", "--yes"]).arg(&run).run_in(scratch.path()).expect_code(0);
    assert!(!run.exists(), "dumps belong to the run");
}

#[test]
fn a_dump_says_what_a_pause_left_out() {
    let scratch = Scratch::new();
    let (mut live, run) = live(300, "", &["--keep", "10s", "--paused"], &scratch);
    live.wait_for("step 50");
    dump(&run, &scratch).expect_code(0);
    assert_eq!(live.finish().code, Some(0));
    assert_eq!(left_out(&run.join("dump-1")), ["recording was never on: --paused"]);
}

#[test]
fn a_live_run_shows_its_steps() {
    let scratch = Scratch::new();
    let (mut live, run) = live(1000, "", &["--keep", "2s"], &scratch);
    live.wait_for("step 200");
    wait_until("a step", || {
        let top = tprof(["top", "--once"]).arg(&run).run_in(scratch.path()).expect_code(0);
        top.stdout.contains("steps/s") && !top.stdout.contains("--keep")
    });
    assert_eq!(live.finish().code, Some(0));
}

#[test]
fn a_run_that_replaces_another_has_none_of_its_dumps() {
    let scratch = Scratch::new();
    let (mut live, run) = live(200, "", &["--keep", "10s"], &scratch);
    live.wait_for("step 50");
    dump(&run, &scratch).expect_code(0);
    assert_eq!(live.finish().code, Some(0));
    let again = traced_job(&job(20, ""), &["--mem", "off", "--force"], &run);
    again.run_in(scratch.cwd()).expect_code(0);
    assert!(!run.join("dump-1").exists());
}

#[test]
fn the_end_of_the_job_itself_leaves_no_empty_dump() {
    for _ in 0..4 {
        let scratch = Scratch::new();
        let options = ["--mem", "off", "--keep", "10s", "--on", "error"];
        let run = traced(&job(50, "ends"), &options, &scratch);
        assert_eq!(run.outcome.code, Some(3), "{:?}", run.outcome);
        let entries = fs::read_dir(&run.run).unwrap().map(|entry| entry.unwrap().file_name());
        let dumps = entries.filter(|name| name.to_string_lossy().starts_with("dump-"));
        assert!(dumps.count() == 0 || run.run.join("dump-1/run.json").exists());
        assert_eq!(steps(&run.run).last(), Some(&48), "the run itself has the last part");
    }
}

#[test]
fn a_run_that_keeps_everything_refuses_a_dump() {
    let scratch = Scratch::new();
    let (mut live, run) = live(200, "", &[], &scratch);
    live.wait_for("step 0");
    let refused = dump(&run, &scratch);
    assert_eq!(refused.code, Some(125), "{refused:?}");
    assert!(refused.stderr.contains("--keep"), "{refused:?}");
    assert!(!run.join("dump-1").exists());
    assert_eq!(live.finish().code, Some(0));
}

#[test]
fn many_requests_at_once_are_all_answered() {
    let scratch = Scratch::new();
    let (mut live, run) = live(500, "", &["--keep", "2s"], &scratch);
    live.wait_for("step 100");
    let written = std::thread::scope(|scope| {
        let all: Vec<_> = (0..20).map(|_| scope.spawn(|| dump(&run, &scratch))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(written.iter().all(|outcome| outcome.code == Some(0)), "{written:?}");
    assert_eq!(live.finish().code, Some(0));
    let dumps = dumps(&run);
    assert_eq!(dumps.len(), 20);
    dumps.iter().for_each(|dump| are_consecutive(&steps(dump)));
}

#[test]
fn a_slow_step_is_written_whole_and_is_the_first_finding() {
    let scratch = Scratch::new();
    let run = run(200, "slow", &["--keep", "10s", "--on", "slow-step=20x"], &scratch);
    let dumps = dumps(&run.run);
    assert_eq!(dumps.len(), 1, "one step was slow");
    let told = format!(": tprof report {}", dumps[0].display());
    assert!(run.outcome.stderr.contains(&told), "{:?}", run.outcome);
    let findings = document("findings", &dumps[0]);
    let first = &findings["tables"]["findings"][0];
    assert_eq!((&first["rule"], &first["function"]), (&"SlowStep".into(), &"is_slow".into()));
    let each = document("steps", &dumps[0]);
    let rows = each["tables"]["steps"].as_array().unwrap();
    let slow = rows.iter().find(|row| row["step"] == 100).unwrap();
    assert!(slow["duration_ns"].as_u64().unwrap() >= 1_000_000_000, "{slow}");
    let seen = first["seen"].as_str().unwrap();
    assert!(seen.contains("The step took 1."), "{seen}");
    assert!(dumps[0].join("slow-step-1.json").exists());
}

#[test]
fn each_slow_step_is_written_once_with_its_cause() {
    let scratch = Scratch::new();
    let run = run(400, "plants", &["--keep", "10s", "--on", "slow-step=20x"], &scratch);
    let dumps = dumps(&run.run);
    assert_eq!(dumps.len(), 3, "{:?}", run.outcome);
    for (dump, (step, function)) in
        dumps.iter().zip([(100, "is_slow"), (200, "computes"), (300, "waits")])
    {
        let findings = document("findings", dump);
        let first = &findings["tables"]["findings"][0];
        assert_eq!((&first["rule"], &first["function"]), (&"SlowStep".into(), &function.into()));
        let seen = first["seen"].as_str().unwrap();
        assert!(seen.contains(&format!("past step {step},")), "{seen}");
    }
}

#[test]
fn a_steady_job_has_no_dump() {
    let options = ["--keep", "10s", "--on", "slow-step=50x,error,oom,signal=USR2"];
    for how in ["", "child"] {
        let scratch = Scratch::new();
        let run = run(100, how, &options, &scratch);
        assert_eq!(dumps(&run.run), Vec::<PathBuf>::new(), "{how}");
    }
}

#[test]
fn a_process_of_a_rank_that_fails_is_an_event() {
    for (how, text) in [("crashes", "was ended by signal 11"), ("fails", "ended with status 3")] {
        let scratch = Scratch::new();
        let run = run(200, how, &["--keep", "10s", "--on", "error"], &scratch);
        let dumps = dumps(&run.run);
        assert_eq!(dumps.len(), 1, "{how}");
        let notes = &run_info(&dumps[0], |_| true)["notes"];
        assert!(notes.to_string().contains(text), "{notes}");
    }
}

#[test]
fn a_signal_to_tprof_is_an_event_and_does_not_reach_the_job() {
    let scratch = Scratch::new();
    // The job would be ended by the signal.
    let (mut live, run) = live(300, "", &["--keep", "10s", "--on", "signal=USR2"], &scratch);
    live.wait_for("step 50");
    kill(live.pid(), libc::SIGUSR2);
    wait_until("a dump", || !dumps(&run).is_empty());
    let outcome = live.finish();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let notes = run_info(&run.join("dump-1"), |_| true)["notes"].to_string();
    assert!(notes.contains("tprof got SIGUSR2"), "{notes}");
}

#[test]
fn a_killed_tprof_leaves_the_last_part() {
    let scratch = Scratch::new();
    let (mut live, run) = live(100_000, "", &["--keep", "1s"], &scratch);
    live.wait_for("step 300");
    // The job goes on without tprof, and would do so for a quarter of an hour.
    let job = children_of(live.pid());
    kill(live.pid(), libc::SIGKILL);
    for pid in job {
        kill(pid, libc::SIGKILL);
    }
    live.finish();
    let steps = steps(&run);
    are_consecutive(&steps);
    assert!((20..=250).contains(&steps.len()), "{steps:?}");
    assert!(steps[0] > 50 && *steps.last().unwrap() > 250, "{steps:?}");
    let summary = tprof(["report"]).arg(&run).run_in(scratch.path()).expect_code(0);
    assert!(summary.stdout.contains("NOT COMPLETE"), "{}", summary.stdout);
    tprof(["rm", "--yes"]).arg(&run).run_in(scratch.path()).expect_code(0);
    assert!(!run.exists(), "the segments belong to the run");
}

/// A supervisor starts the job again, with tprof, after both were killed.
#[test]
fn a_job_that_is_started_again_keeps_what_the_first_has_left() {
    let scratch = Scratch::new();
    let options = ["--keep", "1s", "--if-exists", "join"];
    let run = scratch.run();
    let start = |steps| Live::start(&traced_job(&job(steps, ""), &options, &run), &scratch.cwd());
    let mut live = start(100_000);
    live.wait_for("step 800");
    let killed = children_of(live.pid());
    for pid in [vec![live.pid()], killed].concat() {
        kill(pid, libc::SIGKILL);
    }
    live.finish();
    let mut live = start(300);
    live.wait_for("step 200");
    dump(&run, &scratch).expect_code(0);
    are_consecutive(&steps(&run.join("dump-1")));
    assert_eq!(live.finish().code, Some(0));
    let files = fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().file_name());
    let ranks = files.filter(|name| name.to_string_lossy().ends_with(".tprof")).count();
    assert_eq!(ranks, 2);
    let history = document("history", &run)["tables"]["history"].clone();
    let known: Vec<u64> =
        history.as_array().unwrap().iter().map(|row| row["steps"].as_u64().unwrap()).collect();
    assert!(known.len() == 2 && known.contains(&299), "{history}");
    // Of the last seconds before the end there are only the events of the last one.
    assert!(known.iter().any(|steps| *steps != 299 && *steps > 100), "{history}");
}

#[test]
fn ranks_are_written_together() {
    let scratch = Scratch::new();
    let program = program("steps_on");
    let program = program.display();
    let both = Job::sh(&format!(
        "RANK=1 WORLD_SIZE=2 {program} 300 >/dev/null & RANK=0 WORLD_SIZE=2 exec {program} 300"
    ));
    let run = scratch.run();
    let options = ["--mem", "off", "--keep", "1s"];
    let mut live = Live::start(&traced_job(&both, &options, &run), &scratch.cwd());
    live.wait_for("step 200");
    dump(&run, &scratch).expect_code(0);
    assert_eq!(live.finish().code, Some(0));
    let dumped = document("steps", &run.join("dump-1"));
    let rows = dumped["tables"]["steps"].as_array().unwrap();
    for rank in [0, 1] {
        let of_rank: Vec<&Value> =
            rows.iter().filter(|row| row["rank"] == format!("rank {rank}")).collect();
        assert!(of_rank.len() > 20, "rank {rank}: {rows:?}");
    }
}

#[test]
fn bad_limits_and_events_without_limits_are_refused_with_an_example() {
    for (options, right) in [
        (["--keep", "forever"], "--keep=120s"),
        (["--keep", "steps=0"], "--keep=steps=50"),
        (["--keep", "1KiB"], "--keep=2GiB"),
        (["--on", "error"], "--keep 120s --on error"),
        (["--on", "signal=KILL"], "--on=signal=USR2"),
    ] {
        let refused = tprof(["run"]).args(options).arg("true").run_in(Scratch::new().path());
        assert_eq!(refused.code, Some(125), "{options:?}: {refused:?}");
        assert!(refused.stderr.contains(right), "{refused:?}");
    }
}
