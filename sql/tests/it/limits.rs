//! Tests memory limits and Ctrl-C.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::runs::{of, program};

/// Returns the program with its own directory for temporary files.
fn with_temporary(words: &[&str], temporary: &Path) -> Command {
    let mut command = program(words);
    command.env("TMPDIR", temporary);
    command
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

#[test]
fn a_sort_larger_than_its_memory_uses_files_and_is_right() {
    let temporary = tempfile::tempdir().unwrap();
    let sort = "SELECT count(*) AS n, sum(CASE WHEN v >= before THEN 0 ELSE 1 END) AS wrong, \
                sum(length(p)) AS bytes FROM \
                (SELECT v, p, lag(v) OVER (ORDER BY v) AS before FROM \
                (SELECT (value * 7919) % 1000003 AS v, repeat('x', 40) AS p \
                FROM generate_series(1, 1000000)))";
    let explained = format!("EXPLAIN ANALYZE {sort}");
    let words = ["--memory-limit=64M", "--threads=1", "--format=csv"];
    let spilled = of(with_temporary(&[&words[..], &[&explained]].concat(), temporary.path())
        .output()
        .unwrap());
    assert!(spilled.out.contains("spill_count="), "{}{}", spilled.out, spilled.err);
    assert!(
        !spilled
            .out
            .lines()
            .filter(|line| line.contains("SortExec"))
            .any(|line| line.contains("spill_count=0")),
        "{}",
        spilled.out
    );
    let right =
        of(with_temporary(&[&words[..], &[sort]].concat(), temporary.path()).output().unwrap());
    assert_eq!(
        right.out, "n,wrong,bytes\n1000000,1,40000000\n",
        "the first row has none before; {}",
        right.err
    );
    assert!(is_empty(temporary.path()));
}

#[test]
fn a_query_that_needs_more_memory_fails_and_names_the_option() {
    let temporary = tempfile::tempdir().unwrap();
    let large = "SELECT length(string_agg(repeat('x', 1000), '')) FROM generate_series(1, 200000)";
    let ended =
        of(with_temporary(&["--memory-limit=64M", large], temporary.path()).output().unwrap());
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains("needs more memory than it may have"), "{}", ended.err);
    assert!(ended.err.contains("--memory-limit"), "{}", ended.err);
    assert!(is_empty(temporary.path()));
}

#[test]
fn ctrl_c_ends_a_query_and_leaves_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    let result = tempfile::tempdir().unwrap();
    let file = result.path().join("result.csv");
    // The query returns its first rows at once, and would run for years.
    let endless = "SELECT a.value + b.value FROM generate_series(1, 1000) a, \
                   generate_series(1, 100000000000) b";
    for (signal, status) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let mut child = with_temporary(&[endless, "--format=csv"], temporary.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 64];
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut first).unwrap();
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        // The pipe is full, so the query waits. The test reads on, as a shell's pipe would.
        std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(status));
        assert!(is_empty(temporary.path()));
        let words = [endless, "--format=csv", "-o", file.to_str().unwrap()];
        let mut child = with_temporary(&words, temporary.path()).spawn().unwrap();
        // The query is writing once the file has bytes.
        while !std::fs::read_dir(result.path())
            .unwrap()
            .flatten()
            .any(|entry| entry.metadata().is_ok_and(|data| data.len() > 0))
        {
            assert!(child.try_wait().unwrap().is_none());
            std::thread::yield_now();
        }
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(status));
        assert!(is_empty(result.path()) && is_empty(temporary.path()));
    }
}
