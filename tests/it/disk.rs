//! On a disk that refuses writes, lost figures are unknown and not zero, and the reported reasons
//! are the real ones.

use tprof_tests::{EXACT, Job, Scratch, program, report, tprof, traced};

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
