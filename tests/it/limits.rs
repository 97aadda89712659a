//! Under low limits a job runs and ends as it would without tprof. It is recorded, or it runs
//! unrecorded and tprof names the limit.

use tprof_tests::{Job, Outcome, Scratch, tprof_at, traced_job};

/// Runs `tprof run` of a command that ends with 6, under a limit of the shell.
#[track_caller]
fn assert_runs_under(limit: &str, words: &str) -> Outcome {
    let scratch = Scratch::new();
    let script =
        format!("ulimit {limit} || exit 77; exec \"$0\" run {words} -o run -- sh -c 'exit 6'");
    let job = Job::new("bash").args(["-c", &script]).arg(tprof_at()).limit(60);
    let outcome = job.run_in(scratch.cwd());
    assert_eq!(outcome.code, Some(6), "{limit} {words}: {outcome:?}");
    for word in ["panicked", "overflowed", "not executable"] {
        assert!(!outcome.stderr.contains(word), "{limit} {words}: {outcome:?}");
    }
    // tprof prints a summary, or one error.
    let errors = outcome.stderr.matches("error: ").count();
    let is_recorded = outcome.stderr.contains("exit status 6");
    assert!(errors <= 1, "{limit} {words}: {outcome:?}");
    assert!(is_recorded || errors == 1 || words.contains("-q"), "{limit} {words}: {outcome:?}");
    outcome
}

/// Does the same as [`assert_runs_under`] for a limit that makes recording impossible, and checks
/// the error's text.
#[track_caller]
fn assert_unrecorded(limit: &str, named: &str) {
    let outcome = assert_runs_under(limit, "");
    for text in [named, "tprof: the command runs without a recording"] {
        assert!(outcome.stderr.contains(text), "{limit}: {outcome:?}");
    }
}

#[test]
fn a_job_runs_under_a_limit_of_open_files() {
    for files in [7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 24, 32, 64] {
        for words in ["", "--mem exact", "--activities mem"] {
            assert_runs_under(&format!("-n {files}"), words);
        }
    }
    for files in [4, 7, 10] {
        assert_unrecorded(&format!("-n {files}"), "ulimit -n");
    }
}

#[test]
fn a_job_runs_under_a_limit_of_address_space() {
    // With much less, the loader can't start tprof itself.
    for kib in [60_000, 90_000, 150_000] {
        assert_unrecorded(&format!("-v {kib}"), "ulimit -v");
        assert_runs_under(&format!("-v {kib}"), "-q");
    }
    for kib in [200_000, 300_000, 400_000, 500_000, 1_000_000] {
        for words in ["", "-q"] {
            assert_runs_under(&format!("-v {kib}"), words);
        }
    }
}

#[test]
fn a_job_runs_under_a_limit_of_file_sizes() {
    for blocks in [0, 1, 100] {
        assert_unrecorded(&format!("-f {blocks}"), "ulimit -f");
    }
}

#[test]
fn a_job_runs_under_a_limit_of_stacks() {
    for kib in [32, 64, 128, 400] {
        assert_runs_under(&format!("-s {kib}"), "");
    }
}

#[test]
fn a_job_outlives_a_tprof_that_aborts() {
    // tprof aborts itself if one of its allocations fails, so the signal stands for that.
    let ends = [("sleep 0.1; exit 6", Some(6), None), ("kill -TERM $$", None, Some(libc::SIGTERM))];
    for (rest, code, signal) in ends {
        let script = format!("kill -ABRT $PPID; {rest}");
        let scratch = Scratch::new();
        let job = Job::new("sh").args(["-c", &script]);
        let outcome = traced_job(&job, &[], &scratch.run()).run_in(scratch.path());
        assert_eq!((outcome.code, outcome.signal), (code, signal), "{outcome:?}");
        assert!(outcome.stderr.contains("tprof did not finish its work"), "{outcome:?}");
    }
}
