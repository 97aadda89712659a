//! `tprof sql` runs a separate program. It works if the program is installed, and says what is
//! missing otherwise. The program's own tests are in `sql/tests`.

use std::path::Path;
use std::process::Command;

use tprof_tests::{Job, Scratch, tprof_at};

/// `install` writes the file in another process. If this process wrote it, a child of a concurrent
/// test could inherit the descriptor, and a file that is open for writing can't be executed.
fn install(from: &Path, to: &Path) {
    let status = Command::new("install").args(["-m", "755"]).args([from, to]).status();
    assert!(status.unwrap().success());
}

/// Returns a copy of `tprof` with no file beside it, and with a PATH of one directory.
fn alone(scratch: &Scratch) -> Job {
    let program = scratch.join("bin/tprof");
    std::fs::create_dir(scratch.join("bin")).unwrap();
    std::fs::create_dir(scratch.join("path")).unwrap();
    install(tprof_at(), &program);
    Job::new(program).env("PATH", scratch.join("path"))
}

#[test]
fn without_its_program_tprof_sql_prints_help_or_what_is_missing() {
    let scratch = Scratch::new();
    let help = alone(&scratch).args(["sql", "--help"]).run_in(scratch.cwd()).expect_code(0);
    assert!(help.stdout.contains("--memory-limit"), "{help:?}");
    let scratch = Scratch::new();
    let missing = alone(&scratch).args(["sql", "SELECT 1"]).run_in(scratch.cwd());
    let missing = missing.expect_code(125);
    assert_eq!(missing.stderr.lines().count(), 3, "{missing:?}");
    assert!(missing.stderr.contains("tprof-sql, which is not installed"), "{missing:?}");
    assert!(missing.stderr.contains("pip: tprof[sql]"), "{missing:?}");
    let scratch = Scratch::new();
    let help = alone(&scratch).args(["archive", "--help"]).run_in(scratch.cwd()).expect_code(0);
    assert!(help.stdout.contains("s3://BUCKET/PREFIX"), "{help:?}");
    let scratch = Scratch::new();
    let missing = alone(&scratch).args(["archive", "r1", "--to", "a"]).run_in(scratch.cwd());
    let missing = missing.expect_code(125);
    assert!(missing.stderr.contains("`tprof archive` needs the program tprof-sql"), "{missing:?}");
}

#[test]
fn the_arguments_of_archive_are_passed_on_unchanged() {
    let scratch = Scratch::new();
    let words = ["archive", "r1", "r2", "--to", "s3://a/b", "--raw", "kernels,spans"];
    let job = alone(&scratch).args(words);
    let program = scratch.join("bin/tprof-sql");
    install(&scratch.write("script", "#!/bin/sh\nprintf '%s|' \"$@\"\n"), &program);
    let ended = job.run_in(scratch.cwd()).expect_code(0);
    assert_eq!(ended.stdout, "archive|--to=s3://a/b|--raw=kernels,spans|--|r1|r2|");
}

#[test]
fn tprof_sql_gets_the_arguments_and_its_status_is_returned() {
    for place in ["bin", "path"] {
        let scratch = Scratch::new();
        let job = alone(&scratch).args(["sql", "r1", "SELECT 1", "--format=csv", "--threads=2"]);
        let program = scratch.join(place).join("tprof-sql");
        let script = scratch.write("script", "#!/bin/sh\nprintf '%s|' \"$@\"; exit 3\n");
        install(&script, &program);
        let ended = job.run_in(scratch.cwd()).expect_code(3);
        assert_eq!(ended.stdout, "--format=csv|--threads=2|--|r1|SELECT 1|", "{place}");
    }
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    let scratch = Scratch::new();
    let wrong = alone(&scratch).args(["sql", "--no-such-option"]).run_in(scratch.cwd());
    assert!(wrong.expect_code(2).stderr.starts_with("error: "));
}
