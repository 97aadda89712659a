//! With `TPROF_ENABLED=0`, the command runs as without tprof.

use tprof_tests::{Job, Kind, Scratch, assert_refused, build, program, tprof, tprof_at};

/// Returns the job as `TPROF_ENABLED=0` makes tprof start it.
fn bare(job: &Job) -> Job {
    let tprof = tprof_at().into();
    job.behind(&[tprof, "run".into(), "--redact".into(), "-o".into(), "run".into(), "--".into()])
        .env("TPROF_ENABLED", "0")
}

#[test]
fn tprof_becomes_the_command_and_writes_nothing() {
    let scratch = Scratch::new();
    let cwd = scratch.cwd();
    // The shell itself reads its status, without another program: dash blocks all signals while it
    // starts a program, so that program would show them as blocked.
    let script = "echo pid $$ parent $PPID; env | sort; for fd in /proc/$$/fd/*; do echo ${fd##*/}; done; \
                  while read -r line; do case $line in Sig[BIC]*) echo \"$line\";; esac; done </proc/$$/status; \
                  cat /proc/$$/comm; ls; kill -9 $$";
    let job = Job::new("sh").args(["-c", script]);
    let native = job.clone().env("TPROF_ENABLED", "0").run_in(&cwd);
    let switched = bare(&job).run_in(&cwd);
    let without_pid = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(without_pid(&switched.stdout), without_pid(&native.stdout));
    assert_eq!(
        (switched.code, switched.signal, &switched.stderr),
        (native.code, native.signal, &native.stderr)
    );
    assert_eq!(std::fs::read_dir(&cwd).unwrap().count(), 0);
    // No process lies in between: the job has the pid of the tprof that was started.
    let script = "TPROF_ENABLED=0 \"$0\" run -- sh -c 'echo $$ $PPID' & echo $! $$; wait";
    let output = Job::new("sh").args(["-c", script]).arg(tprof_at()).run_in(&cwd).stdout;
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0], lines[1], "{output}");
}

#[test]
fn the_command_inherits_all_that_tprof_inherited() {
    let scratch = Scratch::new();
    let cwd = scratch.cwd();
    let inherited = Job::new(program("inherited"));
    let closed = "trap '' PIPE CHLD; exec <&-; exec \"$@\"";
    let wrapped = |job: &Job| job.behind(&["sh".into(), "-c".into(), closed.into(), "sh".into()]);
    let native = wrapped(&inherited.clone().env("TPROF_ENABLED", "0")).run_in(&cwd);
    assert_eq!(wrapped(&bare(&inherited)).run_in(&cwd), native);
}

#[test]
fn a_command_that_cannot_be_run_ends_as_under_a_shell() {
    let scratch = Scratch::new();
    let cwd = scratch.cwd();
    let off = |words: &[&str]| {
        tprof(["run", "--"]).args(words).env("TPROF_ENABLED", "0").run_in(&cwd).code
    };
    assert_eq!(off(&["no-such-command"]), Some(127));
    std::fs::write(cwd.join("plain"), "").unwrap();
    assert_eq!(off(&["./plain"]), Some(126));
    assert_eq!(off(&["sh", "-c", "exit 7"]), Some(7));
    // A static program, into which tprof cannot load its library, runs like any other.
    if let Ok(program) = build("short", Kind::Static) {
        assert_eq!(off(&[program.to_str().unwrap()]), Some(0));
    }
}

#[test]
fn tprof_enabled_1_changes_nothing_and_unknown_values_are_refused() {
    let scratch = Scratch::new();
    let cwd = scratch.cwd();
    let with = |value: &str, words: &[&str]| tprof(words).env("TPROF_ENABLED", value).run_in(&cwd);
    let on = with("1", &["run", "--quiet", "-o", "run", "--", "true"]);
    assert_eq!(on.code, Some(0), "{on:?}");
    assert!(cwd.join("run/run.json").exists());
    for value in ["2", "maybe", ""] {
        let refused = with(value, &["run", "--", "true"]);
        assert_refused(&refused, &["TPROF_ENABLED", "true or false"]);
    }
    let dry = with("off", &["run", "--dry-run", "--", "true"]).expect_code(0);
    assert!(
        dry.stdout.starts_with("# TPROF_ENABLED is off: the command runs without tprof"),
        "{dry:?}"
    );
    assert_eq!(with("0", &["env"]).expect_code(0).stdout, "");
    assert_refused(&with("0", &["attach", "1"]), &["not sampled", "unset TPROF_ENABLED"]);
    assert_refused(&with("0", &["run"]), &["no command"]);
}
