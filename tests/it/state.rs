//! tprof does not change the state that a process inherits: descriptors, signals, limits,
//! environment, standard input.

use tprof_tests::{DEFAULT, EXACT, Job, Scratch, assert_unchanged, program, traced, traced_job};

const BOTH: &[&[&str]] = &[EXACT, DEFAULT];

#[test]
fn the_first_descriptor_is_the_jobs_own() {
    assert_unchanged(&Job::new(program("first_fd")), BOTH, &Scratch::new());
}

#[test]
fn all_descriptors_above_two_can_be_closed() {
    let scratch = Scratch::new();
    for how in ["loop", "range"] {
        assert_unchanged(&Job::new(program("close_fds")).arg(how), BOTH, &scratch);
    }
}

#[test]
fn signals_limits_and_the_rest_are_inherited() {
    assert_unchanged(&Job::new(program("inherited")), BOTH, &Scratch::new());
}

#[test]
fn an_unusual_state_is_inherited() {
    let job = Job::new(program("inherited")).under([program("with_state")]);
    let run = assert_unchanged(&job, BOTH, &Scratch::new());
    for line in ["signal 13 ignored", "signal 10 ignored", "umask 27 nice 3"] {
        assert!(run.outcome.stdout.contains(line), "{line}: {:?}", run.outcome);
    }
}

#[test]
fn a_forked_child_inherits_the_same_state() {
    let job = Job::sh("\"$1\"; (\"$1\"); echo done")
        .arg(program("inherited"))
        .under([program("with_state")]);
    assert_unchanged(&job, BOTH, &Scratch::new());
}

#[test]
fn the_job_stays_in_the_process_group() {
    let scratch = Scratch::new();
    let job = Job::new(program("inherited")).arg("group");
    // Every job is started as the leader of a process group, so the traced job must be in tprof's
    // group, and not in one of its own.
    let mut live =
        tprof_tests::Live::start(&traced_job(&job, DEFAULT, &scratch.run()), &scratch.cwd());
    let group = live.pid().to_string();
    live.wait_for(&group);
    assert_eq!(live.finish().code, Some(0));
}

/// Returns the words to put before a job: `sh` with these redirections.
fn redirected(redirections: &str) -> [String; 4] {
    ["sh".into(), "-c".into(), format!("exec \"$@\" {redirections}"), "sh".into()]
}

#[test]
fn closed_standard_streams_stay_closed() {
    let scratch = Scratch::new();
    for redirections in ["<&-", ">&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-"] {
        // If standard output is closed, the program's output goes to a file.
        let script = "\"$1\" >found 2>&1; code=$?; cat found; exit $code";
        let inner = Job::new(program("first_fd")).under(redirected(redirections));
        assert_unchanged(&inner, BOTH, &scratch);
        let listed = Job::sh(script).arg(program("first_fd")).under(redirected("<&-"));
        assert_unchanged(&listed, BOTH, &scratch);
    }
}

#[test]
fn the_environment_is_the_same_in_the_same_order() {
    let job = Job::new(program("environ")).env("VICTIM_ODD", "a=b=c").env("VICTIM_EMPTY", "");
    assert_unchanged(&job, BOTH, &Scratch::new());
}

#[test]
fn an_environment_with_odd_entries_is_kept() {
    let script = "import os, sys; os.execve(sys.argv[1], sys.argv[1:], {b'': b'x', b'A': b'\\xff\\xfe', b'B': b'1'})";
    let job = Job::new(program("environ")).under(["python3", "-c", script]);
    assert_unchanged(&job, &[EXACT], &Scratch::new());
}

#[test]
fn the_jobs_own_preloaded_library_is_kept_behind_tprofs() {
    let scratch = Scratch::new();
    let plugin = program("other_plugin");
    let job = Job::new(program("environ")).arg("preload").env("LD_PRELOAD", &plugin);
    let run = traced(&job, EXACT, &scratch);
    let line = run
        .outcome
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("LD_PRELOAD="))
        .unwrap_or_default();
    let parts: Vec<&str> = line.split([':', ' ']).filter(|part| !part.is_empty()).collect();
    assert_eq!(parts.len(), 2, "{:?}", run.outcome);
    assert_eq!(parts[1], plugin.to_str().unwrap(), "{:?}", run.outcome);
}

#[test]
fn large_standard_input_reaches_the_job() {
    let feed = "seq 300000 | \"$@\"";
    let job = Job::new("md5sum").under(["sh", "-c", feed, "sh"]);
    assert_unchanged(&job, BOTH, &Scratch::new());
}
