//! `tprof ctl` controls a live run from another process.

use serde_json::Value;
use std::path::Path;
use tprof_tests::{
    EXACT, Job, Live, Scratch, document, memory_report, program, report, run_info, tprof,
    traced_job,
};
use tprof_trace::model::MarkKind;

fn start(options: &[&str], run: &Path, scratch: &Scratch) -> Live {
    let job = Job::new(program("steady")).arg("200");
    let mut live = Live::start(&traced_job(&job, options, run), &scratch.cwd());
    live.wait_for("ready");
    run_info(run, |info| info["session"].as_str().is_some_and(|path| !path.is_empty()));
    live
}

#[track_caller]
fn ctl(words: &[&str], run: &Path) -> String {
    tprof(["ctl"]).args(words).arg(run).run_in(run.parent().unwrap()).expect_code(0).stdout
}

fn kept(run: &Path) -> i64 {
    let sites = memory_report(run).sites(|frame| frame.starts_with("victim_keep"));
    sites.iter().map(|site| site["allocations"].as_i64().unwrap()).sum()
}

#[test]
fn events_between_stop_and_start_are_not_recorded() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let mut live = start(EXACT, &run, &scratch);
    live.obey("a");
    ctl(&["stop"], &run);
    live.obey("a");
    live.obey("t");
    live.obey("c");
    live.obey("a");
    ctl(&["start"], &run);
    live.obey("a");
    let outcome = live.finish();
    assert_eq!(outcome.code, Some(48), "{outcome:?}");
    assert_eq!(kept(&run), 2000);
    let memory = &report(&run).0["ranks"][0]["host_memory"];
    assert!(
        memory["live_at_exit_bytes"].is_null(),
        "not known after a gap: {}",
        memory["live_at_exit_bytes"]
    );
}

/// A job that calls `tprof ctl` itself, as some do at each epoch. That isn't a part of the job: its
/// memory isn't missing from the run, and it is marked in the list of processes.
#[test]
fn commands_of_tprof_that_a_job_runs_are_told_from_its_own_processes() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let marks = "sleep 0.2; \"$1\" ctl mark epoch >&2 \"$2\" & wait; true";
    let job = Job::sh(marks).arg(tprof_tests::tprof_at()).arg(&run);
    traced_job(&job, EXACT, &run).run_in(scratch.cwd()).expect_code(0);
    let made = report(&run).0;
    let rows = made["processes"].as_array().unwrap();
    let own: Vec<&Value> = rows.iter().filter(|row| row["own"] == true).collect();
    assert!(
        !own.is_empty() && own.iter().all(|row| row["command"].to_string().contains("tprof")),
        "{rows:#?}"
    );
    assert!(own.len() < rows.len(), "{rows:#?}");
    let blind = made["completeness"]["blind"].to_string();
    assert!(!blind.contains("tprof"), "{blind}");
    let text = tprof(["report"]).arg(&run).run_in(scratch.cwd()).expect_code(0).stdout;
    assert!(text.contains("and 1 command of tprof's own"), "{text}");
}

/// While recording is off, the hooks under `--mem sampled` don't count either, so that they cost next
/// to nothing.
#[test]
fn a_sampled_run_knows_live_bytes_until_it_is_stopped() {
    for stops in [false, true] {
        let scratch = Scratch::new();
        let run = scratch.run();
        let mut live = start(&["--mem", "sampled=64"], &run, &scratch);
        live.obey("a");
        if stops {
            ctl(&["stop"], &run);
            live.obey("a");
            ctl(&["start"], &run);
        }
        live.obey("a");
        assert_eq!(live.finish().code, Some(48));
        let seen = kept(&run);
        assert!((1600..2400).contains(&seen), "{seen}");
        let memory = &report(&run).0["ranks"][0]["host_memory"];
        for figure in ["live_at_exit_bytes", "peak_bytes"] {
            assert_eq!(memory[figure].is_null(), stops, "{memory}");
            let why = memory[format!("{figure}_missing")].as_str().unwrap_or("");
            assert_eq!(why.contains("tprof ctl"), stops, "{memory}");
        }
    }
}

#[test]
fn a_paused_run_records_from_start_on() {
    for options in [EXACT, &["--mem", "sampled=64"]] {
        let scratch = Scratch::new();
        let run = scratch.run();
        let options: Vec<&str> = options.iter().copied().chain(["--paused"]).collect();
        let mut live = start(&options, &run, &scratch);
        live.obey("a");
        ctl(&["start"], &run);
        live.obey("a");
        // What is live now is unknown, but not what was allocated since the start.
        let held: Value = serde_json::from_str(&ctl(&["snapshot", "--json"], &run)).unwrap();
        let sites = held["tables"]["sites"].as_array().unwrap();
        let is_kept = |site: &&Value| site["stack"].as_str().unwrap().contains("victim_keep");
        assert!(sites.iter().find(is_kept).unwrap()["live_bytes"].as_u64() > Some(0), "{held:#}");
        let rank = &held["tables"]["ranks"][0];
        let why = rank["live_bytes_missing"].as_str().unwrap();
        assert!(why.contains("off at first (--paused)"), "{held:#}");
        assert!(held["notes"][0].as_str().unwrap().contains("since recording began"), "{held:#}");
        live.obey("f");
        assert_eq!(live.finish().code, Some(48));
        let seen = kept(&run);
        match options.contains(&"exact") {
            true => assert_eq!(seen, 1000),
            false => assert!((800..1200).contains(&seen), "{seen}"),
        }
    }
}

#[test]
fn a_paused_run_that_is_never_started_records_no_events() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let job = Job::new(program("leave")).args(["exit", "1000", "600"]);
    let outcome = traced_job(&job, &["--mem", "exact", "--paused"], &run).run_in(scratch.cwd());
    assert_eq!(outcome.code, Some(11), "{outcome:?}");
    let report = report(&run).0;
    let completeness = &report["completeness"];
    assert_eq!(completeness["recorded"].as_i64(), Some(0));
    assert_eq!(completeness["verdict"], "PARTIAL, as asked", "{completeness}");
    assert_eq!(completeness["blind"][0]["what"], "everything", "{completeness}");
    let memory = &report["ranks"][0]["host_memory"];
    assert!(memory["allocations"].is_null() && memory["allocated_bytes"].is_null(), "{memory}");
    assert_eq!(memory["allocations_missing"], "recording was never on (--paused)");
}

#[test]
fn marks_are_in_the_exported_trace() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let mut live = start(EXACT, &run, &scratch);
    for name in ["warm", "step 1", "step \"2\" \u{e4}\u{1f600}"] {
        ctl(&["mark", name], &run);
        live.obey("a");
    }
    assert_eq!(live.finish().code, Some(48));
    let out = scratch.join("chrome");
    tprof(["export", "--to", "chrome"])
        .arg(&run)
        .arg("-o")
        .arg(&out)
        .run_in(scratch.path())
        .expect_code(0);
    let trace = crate::export::chrome(&out.join("rank-0.trace.json.gz")).to_string();
    for name in ["warm", "step 1", "step \\\"2\\\" \u{e4}\u{1f600}"] {
        assert!(trace.contains(name), "no mark {name}");
    }
}

/// The job's shell only waits, and children start and end. All steps must belong to the one process
/// that works.
#[test]
fn steps_are_marked_in_the_process_that_works() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let job = Job::sh("\"$1\" 200; true").arg(program("steady"));
    let mut live = Live::start(&traced_job(&job, EXACT, &run), &scratch.cwd());
    live.wait_for("ready");
    run_info(&run, |info| info["session"].as_str().is_some_and(|path| !path.is_empty()));
    for _ in 0..50 {
        live.obey("a");
    }
    ctl(&["step"], &run);
    live.obey("c");
    ctl(&["step"], &run);
    live.obey("a");
    ctl(&["step", "7"], &run);
    let again = tprof(["ctl", "step", "7"]).arg(&run).run_in(scratch.path());
    assert!(again.code != Some(0) && again.stderr.contains("step 7 is marked"), "{again:?}");
    let no_number = tprof(["ctl", "step", "x"]).arg(&run).run_in(scratch.path());
    assert!(no_number.stderr.contains("`x` is not a step number"), "{no_number:?}");
    // Without a run, the command controls the only run in this directory.
    tprof(["ctl", "step"]).run_in(run.parent().unwrap()).expect_code(0);
    live.finish();
    let file = tprof_trace::TraceFile::open(&run.join("rank-0.tprof")).unwrap();
    let report = document("steps", &run);
    let steps = report["tables"]["steps"].as_array().unwrap().iter();
    let numbers: Vec<_> = steps.map(|row| row["step"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [0, 1, 7], "the last step has no end");
    let notes = report["notes"].to_string();
    assert!(notes.contains("3 steps lie between 4 marks: when the step of the last"), "{notes}");
    let marks = file.marks().iter().filter(|mark| mark.kind == MarkKind::Step);
    let processes: Vec<_> = marks.map(|mark| mark.process.unwrap()).collect();
    assert_eq!(processes.len(), 4);
    for process in processes {
        let process = file.processes().iter().find(|one| one.process == process).unwrap();
        let command = file.name(process.command);
        assert!(command.ends_with("steady 200"), "{command}");
    }
}

/// Size of the largest block of `steady`, in bytes.
const LARGEST: u64 = 515;

/// A snapshot contains the blocks that are live at its moment, including those that are freed
/// later.
#[test]
fn a_snapshot_has_the_blocks_that_are_live_at_its_moment() {
    for options in [EXACT, &["--mem", "sampled=64"]] {
        let scratch = Scratch::new();
        let run = scratch.run();
        let mut live = start(options, &run, &scratch);
        let snapshot =
            || -> Value { serde_json::from_str(&ctl(&["snapshot", "--json"], &run)).unwrap() };
        let held = |snapshot: &Value| {
            let sites = snapshot["tables"]["sites"].as_array().unwrap().iter();
            let of_victim =
                sites.filter(|site| site["stack"].as_str().unwrap().contains("victim_keep"));
            of_victim.map(|site| site["live_bytes"].as_u64().unwrap()).sum::<u64>()
        };
        let whole =
            |snapshot: &Value| snapshot["tables"]["ranks"][0]["live_bytes"].as_u64().unwrap();
        live.obey("a");
        // A child that has ended has no live blocks.
        live.obey("c");
        let first = snapshot();
        live.obey("a");
        let second = snapshot();
        live.obey("f");
        let last = snapshot();
        let all = [&first, &second, &last];
        let [held_1, held_2, held_3] = all.map(held);
        let [whole_1, whole_2, whole_3] = all.map(whole);
        let shown =
            format!("held {:?} of {:?}", [held_1, held_2, held_3], [whole_1, whole_2, whole_3]);
        assert!(held_1 > 0 && held_2 > held_1 && held_3 == 0, "{shown}");
        assert!(whole_2 > whole_1 && whole_3 < whole_1, "{shown}");
        if options == EXACT {
            // Between commands the program allocates and frees one block at a time, so each
            // snapshot may contain one of these.
            assert!((whole_2 - whole_3).abs_diff(held_2) <= LARGEST, "{shown}");
        }
        let text = ctl(&["snapshot"], &run);
        assert!(text.contains("Memory now") && text.contains("rank 0"), "{text}");
        let saved = std::fs::read_to_string(run.join("snapshot-2.json")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&saved).unwrap()["tables"], second["tables"]);
        live.finish();
        tprof(["rm", "--yes"]).arg(&run).run_in(scratch.path()).expect_code(0);
        assert!(!run.exists(), "snapshots belong to the run, so `rm` deletes them");
    }
}

#[test]
fn status_shows_rates_loss_and_size() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let mut live = start(EXACT, &run, &scratch);
    live.obey("a");
    let text = ctl(&["status"], &run);
    assert!(!text.trim().is_empty());
    let value: Value = serde_json::from_str(&ctl(&["status", "--json"], &run)).unwrap();
    assert!(value.is_object(), "{value}");
    let low = value.to_string();
    for word in ["recorded", "lost", "bytes"] {
        assert!(low.contains(word), "nothing about {word}: {value}");
    }
    assert_eq!(live.finish().code, Some(48));
}

#[test]
fn a_delay_leaves_out_the_beginning_of_the_job() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let job = Job::sh("\"$1\" exit 500 0; sleep 3; \"$1\" exit 70 0").arg(program("leave"));
    let outcome =
        traced_job(&job, &["--mem", "exact", "--delay", "1500ms"], &run).run_in(scratch.cwd());
    assert_eq!(outcome.code, Some(11), "{outcome:?}");
    assert_eq!(memory_report(&run).in_victims("allocations"), 70);
}

#[test]
fn a_duration_leaves_out_the_end_and_the_job_goes_on() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let job = Job::sh("\"$1\" exit 500 0; sleep 3; \"$1\" exit 70 0").arg(program("leave"));
    let outcome =
        traced_job(&job, &["--mem", "exact", "--duration", "1500ms"], &run).run_in(scratch.cwd());
    assert_eq!(outcome.code, Some(11), "{outcome:?}");
    assert_eq!(memory_report(&run).in_victims("allocations"), 500);
}
