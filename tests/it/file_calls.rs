//! Calls on files, pipes and sockets (`--io on`): their numbers, bytes and names equal what programs
//! did, and the programs notice nothing.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use tprof_tests::{Job, Scratch, assert_unchanged, document, program, tprof, traced};

fn job() -> Job {
    Job::new(program("file_calls")).arg(".")
}

fn rows(run: &Path, table: &str) -> Vec<Value> {
    document("io", run)["tables"][table].as_array().unwrap().clone()
}

/// Calls, failed calls and bytes by operation, of the rows whose file ends so.
fn sums(rows: &[Value], key: &str, end: &str) -> BTreeMap<String, [u64; 3]> {
    let mut sums: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for row in rows.iter().filter(|row| row[key].as_str().unwrap().ends_with(end)) {
        let sum = sums.entry(row["operation"].as_str().unwrap().to_owned()).or_default();
        for (sum, key) in sum.iter_mut().zip(["calls", "failed", "bytes"]) {
            *sum += row[key].as_u64().unwrap();
        }
    }
    sums
}

#[track_caller]
fn assert_sums(rows: &[Value], key: &str, end: &str, expected: &[(&str, [u64; 3])]) {
    let expected: BTreeMap<String, [u64; 3]> =
        expected.iter().map(|(operation, sum)| (operation.to_string(), *sum)).collect();
    assert_eq!(sums(rows, key, end), expected, "{end}: {rows:#?}");
}

#[test]
fn the_program_notices_nothing() {
    let scratch = Scratch::new();
    let run = assert_unchanged(&job(), &[&["--io", "on"], &["--io", "off"]], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
}

#[test]
fn calls_and_bytes_equal_what_the_program_did() {
    let scratch = Scratch::new();
    let run = traced(&job(), &["--io", "on"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let files = rows(&run.run, "files");
    let large = 40 * 65_536;
    assert_sums(
        &files,
        "path",
        "/large.bin",
        &[
            ("open", [3, 0, 0]),
            ("write", [40, 0, large]),
            ("sync", [1, 0, 0]),
            ("read", [641 + 20 + 1, 0, large + 20 * 1024 + 100_000]),
            ("map", [1, 0, 8192]),
            ("close", [3, 0, 0]),
        ],
    );
    assert_sums(
        &files,
        "path",
        "/copy.bin",
        &[
            ("open", [2, 0, 0]),
            ("write", [3, 0, 100_000 + 1200 + 300]),
            // A stream's buffer.
            ("read", [1, 0, 4096]),
            ("close", [2, 0, 0]),
        ],
    );
    // By `freopen`, and by `fclose`.
    assert_sums(&files, "path", "/again.bin", &[("write", [2, 0, 9000]), ("close", [1, 0, 0])]);
    // libc reads a whole buffer: the call for one byte more finds the end.
    assert_sums(
        &files,
        "path",
        "/*.txt",
        &[
            ("open", [60, 0, 0]),
            ("write", [30, 0, 30_000]),
            ("read", [60, 0, 30_000]),
            ("close", [60, 0, 0]),
        ],
    );
    assert_sums(
        &files,
        "path",
        "/child.bin",
        &[("open", [1, 0, 0]), ("write", [1, 0, 777]), ("close", [1, 0, 0])],
    );
    let unknown = sums(&files, "path", "(unknown)");
    assert_eq!(unknown["open"], [1, 1, 0], "the open that failed: {files:#?}");
    assert_eq!(unknown["read"], [1, 1, 0], "the read that failed: {files:#?}");
    let jumps = |row: &Value| row["jumps"].as_u64().unwrap();
    let of_large = files.iter().filter(|row| row["path"].as_str().unwrap().ends_with("/large.bin"));
    assert_eq!(of_large.map(jumps).sum::<u64>(), 20, "the reads backwards");

    let peers = rows(&run.run, "peers");
    let of = |operation: &str, kind: &str| {
        let rows = peers.iter().filter(|row| row["operation"] == operation && row["kind"] == kind);
        rows.map(|row| row["bytes"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((of("write", "socket"), of("read", "socket")), (50_000, 50_000), "{peers:#?}");
    // What a shell wrote to its pipe may not be seen.
    assert_eq!(of("read", "pipe"), 3 + 6, "{peers:#?}");
    assert!((3..=9).contains(&of("write", "pipe")), "{peers:#?}");
    let is_local = |row: &&Value| row["peer"].as_str().unwrap().starts_with("socket 127.0.0.1:");
    assert!(peers.iter().filter(is_local).any(|row| row["operation"] == "connect"), "{peers:#?}");

    let counted = &rows(&run.run, "counted")[0];
    let bytes = |key: &str| counted[key].as_u64().unwrap();
    // The kernel's count, which is read now and then, leaves out what is sent by `send`.
    let known = bytes("recorded_written_bytes") - 50_000;
    assert!(bytes("written_bytes") <= known + 4096, "{counted}");
}

#[test]
fn the_line_of_calls_is_that_of_the_program() {
    let scratch = Scratch::new();
    let script = "import os\n\
                  def store():\n\
                  \x20   with open('a.bin', 'wb', buffering=0) as f:\n\
                  \x20       for _ in range(2000): f.write(b'x' * 65536)\n\
                  store()\n";
    let path = scratch.path().join("stores.py");
    std::fs::write(&path, script).unwrap();
    let job = Job::new("python3").arg(&path);
    let run = traced(&job, &["--io", "on"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let files = rows(&run.run, "files");
    let is_write = |row: &&Value| {
        row["operation"] == "write" && row["path"].as_str().unwrap().ends_with("/a.bin")
    };
    let writes: Vec<&Value> = files.iter().filter(is_write).collect();
    let all: u64 = writes.iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert_eq!(all, 2000 * 65_536, "{files:#?}");
    let of_line = writes.iter().filter(|row| row["function"] == "store" && row["line"] == 4);
    let of_line: u64 = of_line.map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert!(of_line * 10 >= all * 9, "{files:#?}");
}

#[test]
fn without_the_option_nothing_is_recorded_and_the_report_says_so() {
    let scratch = Scratch::new();
    let run = traced(&job(), &[], &scratch);
    assert_eq!(rows(&run.run, "files"), [] as [Value; 0]);
    let text = tprof(["report", "io"]).arg(&run.run).run_in(scratch.path()).stdout;
    assert!(text.contains("run with --io on"), "{text}");
}
