//! Tests of a job with a profiler of its own that uses CUPTI's interface for several clients (CUDA
//! 13.3). CUPTI and CUDA are simulated. Each stretch of the job's work has 36 kernels.

use super::*;
use tprof_tests::{Outcome, subscribed};

/// The variable that makes tprof use that interface as well.
const SUBSCRIBE: (&str, &str) = ("TPROF_CUPTI_SUBSCRIBE", "1");

/// Runs the job without tprof, and then under tprof with these variables. Returns the folder of the
/// second run, the outcome of the first, and what was recorded.
fn run_twice(words: &[&str], env: &[(&str, &str)]) -> Result<(Scratch, Outcome, Ran), String> {
    let (native, scratch) = (Scratch::new(), Scratch::new());
    let alone = subscribed(13, words, &native)?.0.run_in(native.cwd());
    let (mut job, log) = subscribed(13, words, &scratch)?;
    for (name, value) in env {
        job = job.env(name, value);
    }
    let ran = read(traced(&job, GPU, &scratch), &log, 0);
    Ok((scratch, alone, ran))
}

/// Returns the number of `cudaLaunchKernel` calls that were recorded.
fn launches(ran: &Ran) -> usize {
    let spans = rows::<Span>(&ran.file);
    spans.iter().filter(|span| ran.file.name(span.name) == "cudaLaunchKernel").count()
}

#[test]
fn a_profiler_that_permits_others_early_has_tprof_beside_it() {
    let (_scratch, alone, ran) = need_some!(run_twice(&["2", "early"], &[]));
    assert!(alone.stdout.contains("session 2: 36 kernels, 37 calls, 0 of other"), "{alone:?}");
    assert_eq!(ran.traced.outcome, alone);
    assert_kernels(&ran);
    assert_eq!(launches(&ran), kernels_of_log(&ran.log).len());
    assert_eq!(losses(&ran, "", ""), 0);
    let info = run_info(&ran.traced.run, |info| info["finished"] == true);
    assert_eq!(info["completeness"]["blind"].as_array().unwrap().len(), 0);
}

#[test]
fn on_request_sessions_of_a_profiler_and_tprof_both_get_all_records() {
    let (_scratch, alone, ran) = need_some!(run_twice(&["3"], &[SUBSCRIBE]));
    assert_eq!(ran.traced.outcome, alone);
    assert_kernels(&ran);
    assert_eq!(launches(&ran), kernels_of_log(&ran.log).len());
    assert_eq!(losses(&ran, "", ""), 0);
    assert!(!blind(&ran, ""));
}

#[test]
fn a_client_of_the_older_interface_is_refused_and_named() {
    let (_scratch, alone, ran) = need_some!(run_twice(&["1", "older"], &[SUBSCRIBE]));
    assert!(alone.stdout.contains("the older interface: 39"), "{alone:?}");
    assert_eq!(ran.traced.outcome, alone);
    assert!(blind(&ran, "CUPTI refused it"));
    assert_kernels(&ran);
}

#[test]
fn an_exclusive_profiler_stays_alone_and_hooks_record_the_calls() {
    let (_scratch, alone, ran) = need_some!(run_twice(&["1", "early", "alone"], &[SUBSCRIBE]));
    assert_eq!(ran.traced.outcome, alone);
    assert!(blind(&ran, "CUPTI refused it"));
    assert_eq!(launches(&ran), 4 * 36);
}

#[test]
fn tprof_subscribes_again_after_a_profiler_detached_cupti() {
    let (_scratch, alone, ran) = need_some!(run_twice(&["2", "finalize"], &[SUBSCRIBE]));
    assert_eq!(ran.traced.outcome, alone);
    assert!(blind(&ran, "another client detached CUPTI from the process"));
    // There are six stretches of work. The kernels right after a session are missing.
    let kernels = rows::<Kernel>(&ran.file).len();
    assert!((4 * 36..6 * 36).contains(&kernels), "{kernels}");
}

#[test]
fn a_cupti_without_the_newer_interface_is_used_and_named() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(train(13, &["6"], &scratch));
    let job = job.env(SUBSCRIBE.0, SUBSCRIBE.1).env("FAKE_CUPTI_VERSION", "130300");
    let ran = read(traced(&job, GPU, &scratch), &log, 0);
    assert_kernels(&ran);
    assert!(blind(&ran, "CUPTI refused it"));
}
