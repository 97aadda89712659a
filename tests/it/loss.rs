//! All losses are counted, and no failure of the recording harms the job.

use serde_json::Value;
use std::path::Path;
use tprof_tests::{
    DEFAULT, EXACT, Job, Live, Report, Scratch, assert_cut_off, assert_refused, expected, kill,
    memory_report, program, report, run_info, tprof, traced_job, wait_until,
};

fn steady() -> Job {
    Job::new(program("steady")).args(["200".as_ref(), program("short").as_os_str()])
}

/// Starts `steady` under tprof and waits until it is recorded.
fn start(options: &[&str], run: &Path, scratch: &Scratch) -> (Live, Value) {
    let mut live = Live::start(&traced_job(&steady(), options, run), &scratch.cwd());
    live.wait_for("ready");
    let info = run_info(run, |info| {
        info["collector_pid"].as_u64() > Some(0)
            && info["session"].as_str().is_some_and(|path| !path.is_empty())
    });
    (live, info)
}

/// Returns the number of blocks of `victim_keep` in a report.
fn kept(report: &Report) -> i64 {
    let sites = report.sites(|frame| frame.starts_with("victim_keep"));
    sites.iter().map(|site| site["allocations"].as_i64().unwrap()).sum()
}

/// Does the same as [`kept`] for a run in progress.
fn kept_so_far(run: &Path) -> i64 {
    let outcome = tprof(["report", "memory", "--json"]).arg(run).run_in(run.parent().unwrap());
    serde_json::from_str(&outcome.stdout).map_or(0, |report| kept(&Report(report)))
}

#[test]
fn the_job_outlives_its_collector() {
    for options in [EXACT, DEFAULT] {
        let scratch = Scratch::new();
        let run = scratch.run();
        let (mut live, info) = start(options, &run, &scratch);
        live.obey("a");
        let file = run.join("rank-0.tprof");
        wait_until("the file is begun", || file.metadata().is_ok_and(|file| file.len() > 0));
        if options == EXACT {
            wait_until("1,000 blocks are in the files", || kept_so_far(&run) >= 1000);
        }
        assert!(kill(info["collector_pid"].as_u64().unwrap() as u32, libc::SIGKILL));
        // The job goes on: rings fill up, threads and children start and end.
        for command in ["a", "t", "c", "f", "e", "a", "t"] {
            live.obey(command);
        }
        let outcome = live.finish();
        assert!(outcome.stdout.ends_with("end\n"), "{options:?}: {outcome:?}");
        let report = memory_report(&run);
        assert_cut_off(&report);
        let printed = tprof(["report", "memory"]).arg(&run).run_in(scratch.cwd()).stdout;
        assert!(printed.contains("may lack the last 4 s of CPU samples"), "{printed}");
        if options == EXACT {
            let seen = kept(&report);
            assert!(seen >= 1000, "{seen} of the blocks before the kill are in the files");
        }
    }
}

#[test]
fn a_stopped_collector_delays_the_job_for_a_bounded_time() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let (mut live, info) = start(EXACT, &run, &scratch);
    let collector = info["collector_pid"].as_u64().unwrap() as u32;
    // Processes that the job starts in the meantime also wait for the collector's answer once.
    assert!(kill(collector, libc::SIGSTOP));
    for command in ["a", "t", "f", "a", "c", "f"] {
        live.obey(command);
    }
    assert!(kill(collector, libc::SIGCONT));
    let outcome = live.finish();
    assert_eq!(outcome.code, Some(48), "{outcome:?}");
    let report = report(&run);
    let wanted = expected(&outcome.stdout);
    let seen = report.total("allocations") + report.total("frees") + report.lost();
    assert!(seen >= wanted.allocations + wanted.frees, "{seen} seen or lost, {wanted:?}");
}

#[test]
fn a_deleted_session_directory_is_reported() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let (mut live, info) = start(EXACT, &run, &scratch);
    std::fs::remove_dir_all(info["session"].as_str().unwrap()).unwrap();
    for command in ["a", "t", "c", "e", "f"] {
        live.obey(command);
    }
    let outcome = live.finish();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(48), ""), "{outcome:?}");
    let report = memory_report(&run);
    let kept = report.sites(|frame| frame.starts_with("victim_keep"));
    assert_eq!(kept.iter().map(|site| site["allocations"].as_i64().unwrap()).sum::<i64>(), 1000);
    // Processes that started after the deletion are recorded, or reported as not recorded.
    let seen = report.processes("/short").len();
    assert!(
        seen > 0 || report.blind("short").is_some() || report.lost() > 0,
        "{}",
        report.0["completeness"]
    );
}

#[test]
fn a_deleted_run_directory_does_not_harm_the_job() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let (mut live, _) = start(EXACT, &run, &scratch);
    // The collector may be writing into the directory at this moment, so one removal may not be
    // enough.
    while run.exists() {
        let _ = std::fs::remove_dir_all(&run);
    }
    for command in ["a", "t", "c", "f"] {
        live.obey(command);
    }
    let outcome = live.finish();
    assert!(outcome.stdout.ends_with("end\n"), "{outcome:?}");
    assert_eq!(outcome.code, Some(48), "{outcome:?}");
}

#[test]
fn a_second_run_into_a_live_one_harms_neither() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let (mut live, _) = start(EXACT, &run, &scratch);
    live.obey("a");
    for options in [EXACT, &["--mem", "exact", "--force"]] {
        let cwd = scratch.join("second");
        std::fs::create_dir_all(&cwd).unwrap();
        let second = traced_job(&Job::new(program("short")).arg("5"), options, &run).run_in(&cwd);
        // The second run is refused, or recorded beside the first.
        match second.code {
            Some(5) => {}
            _ => assert_refused(&second, &[]),
        }
    }
    live.obey("a");
    let outcome = live.finish();
    assert_eq!(outcome.code, Some(48), "{outcome:?}");
    let wanted = expected(&outcome.stdout);
    let report = memory_report(&run);
    let kept = report.sites(|frame| frame.starts_with("victim_keep"));
    assert_eq!(kept.iter().map(|site| site["allocations"].as_i64().unwrap()).sum::<i64>(), 2000);
    assert!(report.total("allocations") >= wanted.allocations);
}

#[test]
fn events_dropped_from_a_full_ring_are_counted() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let job = Job::new(program("leave")).args(["kill", "1000000", "900000"]);
    let outcome = traced_job(&job, &["--mem", "exact", "--io", "off", "--on-full", "drop"], &run)
        .run_in(scratch.cwd());
    let wanted = expected(&outcome.stdout);
    let report = report(&run);
    // The records of calls on files would count, too.
    let lost = report.lost_of("records");
    let seen = report.total("allocations") + report.total("frees") + lost;
    assert_eq!(seen, wanted.allocations + wanted.frees, "{}", report.0["completeness"]);
    // The job waited neither for room nor for the unwind tables of new code.
    assert_eq!(report.0["overhead"]["wait_ns"], 0, "{}", report.0["overhead"]);
}

#[test]
fn a_run_that_reaches_its_maximal_size_stops_and_reports_it() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let job = Job::new(program("leave")).args(["exit", "1000000", "900000"]);
    let outcome =
        traced_job(&job, &["--mem", "exact", "--max-size", "256K"], &run).run_in(scratch.cwd());
    assert_eq!(outcome.code, Some(11), "{outcome:?}");
    let bytes: u64 = std::fs::read_dir(&run)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(bytes < 1 << 20, "{bytes} bytes");
    let report = report(&run);
    let completeness = report.0["completeness"].to_string();
    assert!(completeness.contains("size"), "{completeness}");
}

#[test]
fn a_sampled_run_counts_live_bytes_after_its_maximal_size() {
    let scratch = Scratch::new();
    let run = scratch.run();
    // Of a million blocks of the job, a tenth stays.
    let job = Job::new(program("leave")).args(["exit", "1000000", "900000"]);
    let options = ["--mem", "sampled=64", "--max-size", "256K"];
    let outcome = traced_job(&job, &options, &run).run_in(scratch.cwd());
    assert_eq!(outcome.code, Some(11), "{outcome:?}");
    let report = report(&run);
    let completeness = report.0["completeness"].to_string();
    assert!(completeness.contains("size"), "{completeness}");
    let memory = &report.0["ranks"][0]["host_memory"];
    let live = memory["live_at_exit_bytes"].as_u64().unwrap_or_else(|| panic!("{memory}"));
    assert!(live >= 100_000 * 24, "{memory}");
}
