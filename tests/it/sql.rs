//! `tprof sql`, a program apart: what it is where it is there, and where it is not. Its own tests are
//! in `sql/tests`.

use std::os::unix::fs::PermissionsExt;

use tprof_tests::{Job, Scratch, tprof_at};

/// A copy of `tprof` beside which nothing lies, and no directory of programs but one.
fn alone(scratch: &Scratch) -> Job {
    let program = scratch.path("bin/tprof");
    std::fs::create_dir(scratch.path("bin")).unwrap();
    std::fs::create_dir(scratch.path("path")).unwrap();
    std::fs::copy(tprof_at(), &program).unwrap();
    Job::new(program).env("PATH", scratch.path("path"))
}

#[test]
fn without_its_program_it_has_its_help_and_names_what_is_missing() {
    let scratch = Scratch::new();
    let help = alone(&scratch).args(["sql", "--help"]).run();
    assert!(help.stdout().contains("--memory-limit"), "{}", help.stdout());
    let scratch = Scratch::new();
    let missing = alone(&scratch).args(["sql", "SELECT 1"]).run();
    assert_eq!(missing.stderr().lines().count(), 3, "{}", missing.stderr());
    assert!(missing.stderr().contains("tprof-sql, and it is not installed"), "{}", missing.stderr());
}

#[test]
fn its_program_beside_it_or_on_path_gets_the_words_and_gives_the_status() {
    for place in ["bin", "path"] {
        let scratch = Scratch::new();
        let job = alone(&scratch).args(["sql", "r1", "SELECT 1", "--format=csv", "--threads=2"]);
        let program = scratch.path(place).join("tprof-sql");
        std::fs::write(&program, "#!/bin/sh\nprintf '%s|' \"$@\"; exit 3\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let ended = job.run();
        assert_eq!(ended.stdout(), "--format=csv|--threads=2|--|r1|SELECT 1|", "{place}");
        assert_eq!(ended.code(), Some(3), "{place}");
    }
}
