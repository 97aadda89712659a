//! On a disk that refuses writes, lost figures are unknown and not zero, and the reported reasons
//! are the real ones.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tprof_tests::{
    EXACT, Job, Live, Refused, Report, Scratch, can_mount, document, need, program, report,
    run_info, tprof, tprof_at, traced, traced_job,
};

/// Runs a job of several processes that allocate, with a disk that fails after this number of
/// writes.
fn failing(writes: u32, scratch: &Scratch) -> tprof_tests::Traced {
    let job = Job::new(program("fork"));
    let job = job.env("LD_PRELOAD", program("failing_writes"));
    traced(&job.env("FAIL_AFTER", writes.to_string()), EXACT, scratch)
}

#[test]
fn lost_events_make_figures_unknown() {
    let native = Job::new(program("fork")).run_in(Scratch::new().cwd());
    let mut all_lost = 0;
    for writes in [3, 5, 6, 7, 8, 9, 10, 12, 16, 24, 40] {
        let scratch = Scratch::new();
        let run = failing(writes, &scratch);
        assert_eq!(run.outcome.code, native.code, "{writes}: {:?}", run.outcome);
        let report = report(&run.run);
        for rank in report.0["ranks"].as_array().unwrap() {
            let memory = &rank["host_memory"];
            for key in ["peak_bytes", "allocated_bytes", "allocations"] {
                assert_ne!(memory[key], 0, "{key} after {writes} writes: {memory}");
            }
            all_lost += usize::from(memory["peak_bytes"].is_null());
            let known = memory["peak_bytes"].is_u64() && report.lost() > 0;
            assert!(!known || memory["at_least"].is_string(), "{writes}: {memory}");
        }
        let printed = tprof(["report"]).arg(&run.run).run_in(scratch.cwd()).stdout;
        assert!(!printed.contains("peak 0 B"), "{writes}: {printed}");
        assert!(!printed.contains("older tprof"), "{writes}: {printed}");
    }
    assert!(all_lost > 0, "no run lost all heap events");
}

#[test]
fn a_run_whose_files_were_refused_says_so() {
    let scratch = Scratch::new();
    let run = failing(3, &scratch);
    let printed = tprof(["report"]).arg(&run.run).run_in(scratch.cwd()).stdout;
    let text = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("tprof could not write its files (input/output error)"), "{printed}");
    assert!(!text.contains("may lack") && !text.contains("older tprof"), "{printed}");
    assert!(text.contains("run.json was last written before it was measured"), "{printed}");
    // The marker that the collector left belongs to the run, like the run's other files.
    let marker = run.run.join("run.unwritten");
    assert!(marker.is_file());
    tprof(["rm", "--yes"]).arg(&run.run).run_in(scratch.cwd()).expect_code(0);
    assert!(!run.run.exists());
}

#[test]
fn a_disk_that_accepts_all_writes_leaves_no_marker() {
    let scratch = Scratch::new();
    let run = failing(1_000_000, &scratch);
    assert!(report(&run.run).0["completeness"]["complete"].as_bool().unwrap());
    assert!(!run.run.join("run.unwritten").exists());
}

/// A job of two hundred steps of which the last part is kept.
fn keeping(run: &Path) -> Job {
    let job = Job::new(program("steps_on")).arg("200");
    traced_job(&job, &["--keep", "10s", "--mem", "exact"], run)
}

fn steps_of_history(run: &Path) -> u64 {
    let history = document("history", run);
    history["tables"]["history"][0]["steps"].as_u64().unwrap()
}

#[test]
fn a_disk_that_was_full_for_a_while_costs_no_step_or_says_so() {
    for (after, until) in [(4, 8), (8, 30), (16, 60)] {
        let scratch = Scratch::new();
        let run = scratch.run();
        let job = keeping(&run).env("LD_PRELOAD", program("failing_writes"));
        let job = job.env("FAIL_AFTER", after.to_string()).env("FAIL_UNTIL", until.to_string());
        job.run_in(scratch.cwd()).expect_code(0);
        let each = document("steps", &run)["tables"]["steps"].as_array().unwrap().len();
        let lost = report(&run).lost();
        assert!(each == 199 || lost > 0, "{after} to {until}: {each} steps, {lost} lost");
        assert_eq!(steps_of_history(&run), 199, "{after} to {until}");
    }
}

#[test]
fn a_directory_that_was_away_for_a_while_costs_no_step_or_says_so() {
    let scratch = Scratch::new();
    let (run, away) = (scratch.run(), scratch.join("away"));
    let mut live = Live::start(&keeping(&run), &scratch.cwd());
    live.wait_for("step 50");
    fs::rename(&run, &away).unwrap();
    live.wait_for("step 150");
    assert!(!run.exists(), "tprof has made it again");
    fs::rename(&away, &run).unwrap();
    let outcome = live.finish();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(run_info(&run, |_| true)["finished"], true);
    let each = document("steps", &run)["tables"]["steps"].as_array().unwrap().len();
    let lost = report(&run).lost();
    assert!(each == 199 || lost > 0, "{each} steps, {lost} lost");
    assert_eq!(steps_of_history(&run), 199, "{outcome:?}");
}

#[test]
fn a_job_whose_run_is_deleted_goes_on() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let mut live = Live::start(&keeping(&run), &scratch.cwd());
    live.wait_for("step 50");
    fs::remove_dir_all(&run).unwrap();
    live.wait_for("step 199");
    let outcome = live.finish();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stderr.contains("tprof:"), "it says nothing: {outcome:?}");
}

/// A tmpfs that something else fills while the job runs, and frees again. The run's part that is kept
/// must not stay lost.
#[test]
fn a_disk_that_fills_up_under_a_run_that_keeps_its_last_part_costs_no_later_step() {
    need!(can_mount(), Refused::Mounts);
    let scratch = Scratch::new();
    fs::create_dir(scratch.join("disk")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=2m tmpfs disk || exit 99
        (until grep -q 'step 20' out 2>/dev/null; do sleep 0.01; done
         head -c 4000000 /dev/zero >disk/fill 2>/dev/null; touch filled
         until grep -q 'step 120' out; do sleep 0.01; done; rm disk/fill) &
        '{tprof}' run --keep 10s --mem exact -o disk/run -- \"$@\" >out 2>err; code=$?
        wait; test -e filled || exit 98
        '{tprof}' report steps disk/run --json >steps.json
        '{tprof}' report disk/run --json >report.json
        exit $code",
        tprof = tprof_at().display()
    );
    let job = Job::new(program("steps_on")).arg("200");
    let outcome = job.under(["unshare", "-m", "sh", "-c", &script, "sh"]).run_in(scratch.path());
    let read = |name: &str| fs::read_to_string(scratch.join(name)).unwrap();
    assert_eq!(outcome.code, Some(0), "{outcome:?} {}", read("err"));
    assert!(read("out").ends_with("step 199\n"), "{}", read("out"));
    let of = |name: &str| -> Value { serde_json::from_str(&read(name)).unwrap() };
    let steps = of("steps.json");
    let numbers: Vec<u64> = steps["tables"]["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["step"].as_u64().unwrap())
        .collect();
    let lost = Report(of("report.json")).lost();
    assert!(numbers.len() == 199 || lost > 0, "{lost} lost, {numbers:?}");
    // What came after the disk had room again is all there.
    assert!((150..199).all(|step| numbers.contains(&step)), "{numbers:?}");
}
