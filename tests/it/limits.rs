//! Under low limits a job runs, or tprof is refused by its own name for the reason.

use tprof_tests::{Job, Scratch, tprof_at};

/// `tprof run` of a command that ends with 6, under a limit of a shell.
#[track_caller]
fn under(limit: &str, words: &str) -> tprof_tests::Outcome {
    let scratch = Scratch::new();
    let script =
        format!("ulimit {limit} || exit 77; exec \"$0\" run -q {words} -o run -- sh -c 'exit 6'");
    let job = Job::new("bash").args(["-c", &script]).arg(tprof_at()).limit(60);
    job.run_in(scratch.cwd())
}

#[test]
fn a_limit_of_open_files_is_named() {
    for files in [7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 24, 32, 64] {
        for words in ["", "--mem exact", "--activities mem"] {
            let outcome = under(&format!("-n {files}"), words);
            let said = outcome.stderr.to_lowercase();
            let is_named = said.contains("too many open files") || said.contains("ulimit -n");
            assert!(outcome.code == Some(6) || is_named, "{files} {words}: {outcome:?}");
            assert!(!said.contains("not executable"), "{files} {words}: {outcome:?}");
        }
    }
}

#[test]
fn a_limit_of_memory_is_named() {
    for kib in [60_000, 100_000, 200_000, 400_000, 800_000] {
        let outcome = under(&format!("-v {kib}"), "");
        let said = outcome.stderr.to_lowercase();
        // Under the lowest the loader refuses tprof itself. A thread lacks memory as "temporarily
        // unavailable".
        let is_named = said.contains("ulimit -v") || said.contains("error while loading");
        assert!(!said.contains("not executable"), "{kib}: {outcome:?}");
        assert!(outcome.code == Some(6) || is_named, "{kib}: {outcome:?}");
    }
}
