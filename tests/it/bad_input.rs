//! Bad input is reported, with the nearest valid word, before the job starts.

use std::os::unix::fs::PermissionsExt;
use tprof_tests::{Job, Scratch, assert_refused, program, tprof, traced_job};

/// Returns a job that leaves a file if it is started.
fn marking() -> [&'static str; 5] {
    ["--", "sh", "-c", "touch started; echo ran", "sh"]
}

/// Runs `tprof run WORDS -- JOB`; the job must not have been started.
#[track_caller]
fn run_refused(words: &[&str], env: &[(&str, &str)], file: Option<&str>, named: &[&str]) {
    let scratch = Scratch::new();
    let cwd = scratch.cwd();
    if let Some(text) = file {
        std::fs::write(cwd.join("tprof.toml"), text).unwrap();
    }
    let mut job = tprof(["run", "-o", "../run"]).args(words).args(marking());
    for (name, value) in env {
        job = job.env(name, value);
    }
    let outcome = job.run_in(&cwd);
    assert_refused(&outcome, named);
    assert!(!cwd.join("started").exists(), "the job was started: {outcome:?}");
    assert!(!scratch.join("run").exists(), "a run was made: {outcome:?}");
}

#[track_caller]
fn refused(words: &[&str], named: &[&str]) {
    let scratch = Scratch::new();
    assert_refused(&tprof(words).run_in(scratch.path()), named);
}

#[test]
fn an_unknown_option_is_named_with_the_nearest() {
    run_refused(&["--memm", "exact"], &[], None, &["--memm", "--mem"]);
    run_refused(&["--stack", "off"], &[], None, &["--stack", "--stacks"]);
    run_refused(&["--onfull=drop"], &[], None, &["--onfull", "--on-full"]);
    refused(&["report", "--jsn", "run"], &["--jsn", "--json"]);
}

#[test]
fn an_unknown_value_is_named_with_the_nearest() {
    run_refused(&["--mem", "exat"], &[], None, &["exat", "exact"]);
    run_refused(&["--mem", "sampled=lots"], &[], None, &["sampled=lots"]);
    run_refused(&["--mem", "sampled=0"], &[], None, &["sampled=0"]);
    run_refused(&["--stacks", "dwrf"], &[], None, &["dwrf", "dwarf"]);
    run_refused(&["--on-full", "weit"], &[], None, &["weit", "wait"]);
    run_refused(&["--max-size", "12 parsecs"], &[], None, &["12 parsecs", "--max-size"]);
    run_refused(&["--duration", "-3s"], &[], None, &["--duration"]);
    run_refused(&["--delay", "soon"], &[], None, &["soon", "--delay"]);
    run_refused(&["--export", "chrom"], &[], None, &["chrom", "chrome"]);
}

#[test]
fn a_malformed_or_contradictory_schedule_is_refused() {
    let parts = "wait=3,warmup=1,active=3";
    for (words, named) in [
        (&["--schedule", "wait=-1,active=3"][..], &["wait=-1", "a whole number from 0"][..]),
        (&["--schedule", "wait=1,wait=2,active=3"], &["`wait` is given twice"]),
        (&["--schedule", "wiat=1,active=3"], &["`wiat`", "wait?"]),
        (&["--schedule", "3,1,3"], &["`3` is not a part", "skip-first-wait"]),
        (&["--schedule", "wait=1"], &["no `active`"]),
        (&["--schedule", "active=0"], &["records nothing"]),
        (&["--schedule", "active=1,skip-first-wait=2"], &["skip-first-wait=2"]),
        (&["--schedule", parts, "--unit", "hour"], &["hour", "step, epoch or second"]),
        (&["--unit", "epoch"], &["`unit` needs a schedule"]),
        (&["--schedule", parts, "--active", "2"], &["--active", "active=2"]),
        (&["--wait", "-2"], &["--wait", "a whole number from 0"]),
        (&["--schedule", parts, "--capture-range", "nvtx:a"], &["exclude each other"]),
        (&["--schedule", parts, "--paused"], &["`paused` and `schedule`"]),
        (&["--capture-range", "nvtx:"], &["no name"]),
        (&["--capture-range", "eval"], &["nvtx:NAME"]),
        (&["--capture-range", "step:6-4"], &["the last step comes before the first"]),
        (&["--capture-end", "stop"], &["`capture-end` needs `capture-range`"]),
        (&["--capture-range", "step:4-6", "--capture-end", "repeat"], &["exclude each other"]),
        (&["--capture-range", "nvtx:a", "--delay", "1s"], &["`delay` and `capture-range`"]),
    ] {
        run_refused(words, &[], None, named);
    }
}

#[test]
fn an_unknown_activity_is_named_with_the_nearest() {
    run_refused(&["--activities", "men"], &[], None, &["men", "mem"]);
    run_refused(&["--activities", "mem,nvtxx"], &[], None, &["nvtxx", "nvtx"]);
    run_refused(&["--activities", ""], &[], None, &["--activities"]);
}

#[test]
fn an_unknown_report_kind_is_named_with_the_nearest() {
    refused(&["report", "memry", "run"], &["memry", "memory"]);
    refused(&["report", "sumary", "run"], &["sumary", "summary"]);
}

#[test]
fn an_unknown_command_or_format_is_named_with_the_nearest() {
    refused(&["rum", "--", "true"], &["rum", "run"]);
    refused(&["record", "true"], &["record", "tprof run -- COMMAND"]);
    refused(&["status"], &["status", "tprof ctl status"]);
    refused(&["dashboard"], &["dashboard", "tprof serve"]);
    refused(&["list"], &["list", "tprof ls"]);
    refused(&["zzyzx"], &["zzyzx", "tprof --help"]);
    refused(&["report", "run", "--rank", "x"], &["--rank 0"]);
    refused(&["ctl", "strat", "run"], &["strat", "start"]);
    let scratch = Scratch::new();
    let run = scratch.run();
    let made = traced_job(&Job::new(program("short")), &[], &run).run_in(scratch.cwd());
    assert_eq!(made.code, Some(0), "{made:?}");
    let outcome = tprof(["export", "--to", "chrom"]).arg(&run).run_in(scratch.path());
    assert_refused(&outcome, &["chrom", "chrome"]);
}

#[test]
fn a_malformed_variable_is_named_before_the_job_starts() {
    run_refused(&[], &[("TPROF_MEM", "exat")], None, &["TPROF_MEM", "exat", "exact"]);
    run_refused(&[], &[("TPROF_STACKS", "")], None, &["TPROF_STACKS"]);
    run_refused(&[], &[("TPROF_MAX_SIZE", "big")], None, &["TPROF_MAX_SIZE", "big"]);
    run_refused(&[], &[("TPROF_ACTIVITIES", "mem,gup")], None, &["TPROF_ACTIVITIES", "gup", "gpu"]);
    run_refused(&[], &[("TPROF_ON_FULL", "block")], None, &["TPROF_ON_FULL", "block"]);
    run_refused(&[], &[("TPROF_STAKCS", "off")], None, &["TPROF_STAKCS", "TPROF_STACKS"]);
    run_refused(&[], &[("TPROF_PAUSED", "maybe")], None, &["TPROF_PAUSED", "maybe"]);
}

#[test]
fn a_malformed_key_is_named_before_the_job_starts() {
    run_refused(&[], &[], Some("mem = \"exat\"\n"), &["mem", "exat", "exact", "tprof.toml"]);
    run_refused(&[], &[], Some("stakcs = \"off\"\n"), &["stakcs", "stacks", "tprof.toml"]);
    run_refused(&[], &[], Some("max-size = true\n"), &["max-size", "tprof.toml"]);
    run_refused(&[], &[], Some("[mem]\nmode = 1\n"), &["mem", "tprof.toml"]);
    run_refused(&[], &[], Some("mem = \n"), &["tprof.toml", "line 1"]);
    run_refused(&[], &[], Some("mem = \"off\"\nmem = \"exact\"\n"), &["tprof.toml", "line 2"]);
}

#[test]
fn a_flag_wins_over_a_variable_over_the_file() {
    let scratch = Scratch::new();
    let cwd = scratch.cwd();
    std::fs::write(cwd.join("tprof.toml"), "mem = \"off\"\nstacks = \"off\"\non-full = \"drop\"\n")
        .unwrap();
    let job = tprof(["run", "--dry-run", "--mem", "exact", "--", "true"])
        .env("TPROF_STACKS", "fp")
        .env("TPROF_MEM", "off");
    let outcome = job.run_in(&cwd).expect_code(0);
    for line in ["mem = \"exact\"", "stacks = \"fp\"", "on-full = \"drop\""] {
        assert!(outcome.stdout.contains(line), "{line}: {outcome:?}");
    }
    assert_eq!(std::fs::read_dir(&cwd).unwrap().count(), 1, "a dry run wrote files");
}

#[test]
fn no_command_is_an_error() {
    for words in
        [&["run"][..], &["run", "--"], &["run", "--mem", "exact"], &["run", "--mem", "exact", "--"]]
    {
        refused(words, &[]);
    }
}

#[test]
fn a_command_that_is_not_found_exits_with_127() {
    let scratch = Scratch::new();
    for command in ["no-such-command-anywhere", "./missing", "/does/not/exist", "/dev/null/x"] {
        let outcome = tprof(["run", "-o", "run", "--", command]).run_in(scratch.path());
        assert_eq!(outcome.code, Some(127), "{outcome:?}");
        assert!(
            outcome.stderr.contains(command) && outcome.stderr.starts_with("error:"),
            "{outcome:?}"
        );
        assert!(!scratch.join("run").exists(), "a run was made for {command}");
    }
}

#[test]
fn a_command_that_is_not_executable_exits_with_126() {
    let scratch = Scratch::new();
    let plain = scratch.write("plain", "echo no\n");
    let broken = scratch.write("broken", "\x7fELF nonsense");
    std::fs::set_permissions(&broken, PermissionsExt::from_mode(0o755)).unwrap();
    for command in
        [plain.to_str().unwrap(), broken.to_str().unwrap(), scratch.path().to_str().unwrap()]
    {
        let outcome = tprof(["run", "-o", "run", "--", command]).run_in(scratch.path());
        assert_eq!(outcome.code, Some(126), "{outcome:?}");
        assert!(
            outcome.stderr.contains(command) && outcome.stderr.starts_with("error:"),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_script_without_a_first_line_is_run_by_the_shell() {
    let scratch = Scratch::new();
    let script = scratch.write("script", "echo from the script $1\nexit 6\n");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let outcome =
        traced_job(&Job::new(&script).arg("here"), &[], &scratch.run()).run_in(scratch.cwd());
    assert_eq!(
        (outcome.code, outcome.stdout.as_str()),
        (Some(6), "from the script here\n"),
        "{outcome:?}"
    );
}

#[test]
fn help_and_version_go_to_standard_output() {
    let scratch = Scratch::new();
    for words in [&["--help"][..], &["--version"], &["run", "--help"], &["report", "--help"]] {
        let outcome = tprof(words).run_in(scratch.path()).expect_code(0);
        assert!(!outcome.stdout.is_empty() && outcome.stderr.is_empty(), "{outcome:?}");
        assert!(
            outcome.stdout.lines().all(|line| line.chars().count() <= 80),
            "{}",
            outcome.stdout
        );
    }
    let nothing = tprof::<&str>([]).run_in(scratch.path());
    assert_ne!(nothing.code, Some(0), "{nothing:?}");
}

#[test]
fn ctl_refuses_a_run_that_does_not_exist() {
    let scratch = Scratch::new();
    let run = scratch.run();
    for words in [&["ctl", "status"][..], &["ctl", "stop"], &["ctl", "mark", "x"]] {
        assert_refused(&tprof(words).arg(&run).run_in(scratch.path()), &[run.to_str().unwrap()]);
    }
    let done = traced_job(&Job::new(program("short")), &[], &run).run_in(scratch.cwd());
    assert_eq!(done.code, Some(0));
    assert_refused(
        &tprof(["ctl", "status"]).arg(&run).run_in(scratch.path()),
        &[run.to_str().unwrap()],
    );
}
