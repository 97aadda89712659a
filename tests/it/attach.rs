//! `tprof env` attaches processes without `tprof run`: the first attached process starts the
//! collector, and is not disturbed by it.

use tprof_tests::{
    Job, Kind, Scratch, attach_script, build, expected, memory_report, need_some, program,
    run_info, tprof, wait_until,
};

/// Runs `body` natively in `sh`, then after `eval "$(tprof env …)"`. Both must behave the same.
/// Waits for the collector to finish.
#[track_caller]
fn attached(
    body: &str,
    arguments: &[std::path::PathBuf],
    scratch: &Scratch,
) -> (tprof_tests::Outcome, std::path::PathBuf) {
    let native = Job::sh(body).args(arguments).run_in(scratch.cwd());
    let run = scratch.run();
    let traced = attach_script("--mem exact", &run, body).args(arguments).run_in(scratch.cwd());
    assert!(traced == native, "{body}\n=== native: {native:?}\n=== attached: {traced:?}");
    run_info(&run, |info| info["finished"] == true);
    (traced, run)
}

/// Waits until each collector that joined a run has written its last file.
fn all_finished(run: &std::path::Path) {
    let infos = || std::fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path());
    let is_over = |path: &std::path::PathBuf| {
        let info = serde_json::from_slice(&std::fs::read(path).unwrap());
        info.is_ok_and(|info: serde_json::Value| info["finished"] == true)
    };
    wait_until("all collectors have ended", || {
        infos().filter(|path| path.extension() == Some("json".as_ref())).all(|path| is_over(&path))
    });
}

#[test]
fn counts_are_exact_without_a_launcher() {
    let scratch = Scratch::new();
    for how in ["exit", "kill"] {
        let (outcome, run) =
            attached(&format!("\"$1\" {how} 1000 600"), &[program("leave")], &scratch);
        let wanted = expected(&outcome.stdout);
        let report = memory_report(&run);
        assert_eq!(report.in_victims("allocations"), wanted.allocations);
        assert_eq!(report.in_victims("live_bytes"), wanted.live);
        assert_eq!(report.lost(), 0, "{}", report.0["completeness"]);
    }
}

#[test]
fn a_command_substitution_ends_when_its_command_does() {
    let scratch = Scratch::new();
    // The first attached process starts the collector; the shell waits for that process's output.
    let body = "x=$(\"$1\" exit 100 60); echo \"$? got $x\"; y=$(\"$1\" exit 10 6 2>&1 | cat); echo \"and $y\"";
    let (outcome, run) = attached(body, &[program("leave")], &scratch);
    assert!(outcome.stdout.starts_with("11 got expect"), "{outcome:?}");
    assert_eq!(memory_report(&run).in_victims("allocations"), 110);
}

#[test]
fn attached_programs_have_no_additional_child() {
    let scratch = Scratch::new();
    attached("\"$1\" any; \"$1\" ignored; \"$1\" any", &[program("children")], &scratch);
}

#[test]
fn attached_programs_have_no_additional_descriptor() {
    let scratch = Scratch::new();
    attached("\"$1\"; \"$1\"; ls /proc/self/fd | wc -l", &[program("first_fd")], &scratch);
}

#[test]
fn attached_programs_inherit_the_same_state() {
    let scratch = Scratch::new();
    attached("\"$1\" \"$2\"; \"$2\"", &[program("with_state"), program("inherited")], &scratch);
}

#[test]
fn a_job_that_forks_and_executes_is_followed() {
    let scratch = Scratch::new();
    let (outcome, run) =
        attached("\"$1\"; \"$2\"", &[program("fork"), program("vfork_exec")], &scratch);
    let report = memory_report(&run);
    let forked = expected(&outcome.stdout).allocations;
    assert_eq!(report.in_victims("allocations"), forked + 530);
}

#[test]
fn processes_started_together_share_one_run() {
    let scratch = Scratch::new();
    let body = "for i in 1 2 3 4 5 6 7 8; do \"$1\" $i & done; wait; echo all";
    let (_, run) = attached(body, &[program("short")], &scratch);
    assert_eq!(memory_report(&run).in_victims("allocations"), 8);
}

/// An on-demand collector ends half a second after its last process. A process that starts at that
/// moment is recorded by that collector or by the next one.
#[test]
fn processes_that_start_as_the_collector_ends_are_recorded() {
    let scratch = Scratch::new();
    let body = "for i in 0 1 2 3 4 5 6 7; do
        for j in 0 1 2 3 4 5 6 7 8 9; do
            (LD_PRELOAD= sleep 0.5$i$j; \"$1\" $i) &
        done; wait
    done; echo all";
    let (_, run) = attached(body, &[program("short")], &scratch);
    all_finished(&run);
    // The sites are not compared, because on a busy machine a process may end before its unwind
    // tables are ready.
    assert_eq!(memory_report(&run).total("allocations"), 80);
}

#[test]
fn a_static_program_alone_is_harmless() {
    let scratch = Scratch::new();
    let leave = need_some!(build("leave", Kind::Static));
    let native = Job::sh("\"$1\" exit; echo $?").arg(&leave).run_in(scratch.cwd());
    let traced =
        attach_script("", &scratch.run(), "\"$1\" exit; echo $?").arg(&leave).run_in(scratch.cwd());
    assert!(traced == native, "native {native:?} attached {traced:?}");
}

#[test]
fn exported_variables_survive_a_run_with_an_odd_name() {
    let scratch = Scratch::new();
    let odd = scratch.join("it's a \"run\" $HOME `date`");
    let script =
        format!("eval \"$('{}' env -o \"$1\")\"; \"$2\" 3", tprof_tests::tprof_at().display());
    let outcome = Job::sh(&script).arg(&odd).arg(program("short")).run_in(scratch.cwd());
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(3), ""), "{outcome:?}");
    run_info(&odd, |info| info["finished"] == true);
    // LD_PRELOAD is separated by spaces, so a library path of two words would break later commands.
    let lines = tprof(["env", "-o", "run"]).run_in(scratch.cwd()).expect_code(0);
    assert!(lines.stdout.lines().all(|line| line.starts_with("export ")), "{lines:?}");
}

#[test]
fn a_bad_option_of_env_fails_before_anything_is_exported() {
    let scratch = Scratch::new();
    let outcome = tprof(["env", "--mem", "exat", "-o", "run"]).run_in(scratch.cwd());
    tprof_tests::assert_refused(&outcome, &["exat", "exact"]);
}

#[test]
fn the_session_directory_is_removed_when_the_run_finishes() {
    let scratch = Scratch::new();
    let (_, run) = attached("\"$1\" 0", &[program("short")], &scratch);
    let info = run_info(&run, |info| info["finished"] == true);
    let session = std::path::Path::new(info["session"].as_str().unwrap());
    wait_until("the session's directory is gone", || !session.join("sock").exists());
}
