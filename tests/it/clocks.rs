//! tprof notices that a library changes the time that a job reads, and names the library.

use serde_json::Value;
use tprof_tests::{Job, Scratch, program, report, run_info, traced};

fn notes(report: &Value) -> String {
    report["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect()
}

#[test]
fn a_library_that_bends_the_time_of_day_is_named() {
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let scratch = Scratch::new();
    let job = Job::new(program("short")).env("LD_PRELOAD", program("bent_clock"));
    let run = traced(&job, &[], &scratch);
    let found = notes(&report(&run.run).0);
    assert!(found.contains("behind the machine's"), "{found}");
    // The run's start time is the machine's real time.
    let info = run_info(&run.run, |info| info["finished"] == true);
    assert!(info["start_unix_ns"].as_u64().unwrap() >= before.as_nanos() as u64, "{info}");
    let run = traced(&Job::new(program("short")), &[], &scratch);
    assert!(!notes(&report(&run.run).0).contains("machine's"));
}

#[test]
fn a_job_under_libfaketime_is_named() {
    let scratch = Scratch::new();
    // Any library with that name is recognized.
    let library = scratch.join("libfaketime.so.1");
    std::fs::copy(program("bent_clock"), &library).unwrap();
    let set = format!("LD_PRELOAD=\"$LD_PRELOAD:{}\" exec \"$0\"", library.display());
    let job = Job::new("sh").args(["-c", &set]).arg(program("steady")).arg("200");
    let job = job.arg(program("short"));
    let run = traced(&job, &[], &scratch);
    let found = notes(&report(&run.run).0);
    assert!(found.contains("libfaketime gave one program other times"), "{found}");
}
