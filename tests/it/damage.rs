//! `report` on a missing, empty, truncated, corrupted or newer run prints one clear error, or a
//! report of everything that is intact and a line on what is missing. It never crashes.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tprof_tests::{EXACT, Job, Outcome, Scratch, assert_refused, program, tprof, traced};

/// Returns an intact run, whose copies the tests damage.
fn intact_run() -> &'static Path {
    static RUN: OnceLock<(Scratch, PathBuf)> = OnceLock::new();
    let (_, run) = RUN.get_or_init(|| {
        let scratch = Scratch::new();
        let run = traced(&Job::new(program("fork")), EXACT, &scratch).run;
        (scratch, run)
    });
    run
}

/// Copies the run, and returns the paths of the copy and of its rank file.
fn copy(scratch: &Scratch) -> (PathBuf, PathBuf) {
    let run = scratch.run();
    fs::create_dir(&run).unwrap();
    for entry in fs::read_dir(intact_run()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), run.join(entry.file_name())).unwrap();
    }
    let rank = run.join("rank-0.tprof");
    (run, rank)
}

fn read(path: &Path, kind: &str) -> Outcome {
    let folder = path.ancestors().skip(1).find(|folder| folder.is_dir());
    tprof(["report", kind, "--json"]).arg(path).limit(60).run_in(folder.unwrap())
}

/// Checks that the output is either a report that names what is missing, or one clear error.
#[track_caller]
fn assert_reported(outcome: &Outcome, what: &str) {
    match outcome.code {
        Some(0) => {
            let value: Value = serde_json::from_str(&outcome.stdout)
                .unwrap_or_else(|e| panic!("{what}: {e}: {outcome:?}"));
            let problems = value["problems"].as_array().is_some_and(|list| !list.is_empty());
            let lost = value["completeness"]["lost"].as_i64() > Some(0);
            assert!(problems || lost, "{what}: nothing is reported: {}", value["completeness"]);
        }
        Some(125) => assert_refused(outcome, &[]),
        _ => panic!("{what}: {outcome:?}"),
    }
}

#[test]
fn a_missing_run_is_one_clear_error() {
    let scratch = Scratch::new();
    for kind in ["summary", "memory"] {
        assert_refused(&read(&scratch.join("absent"), kind), &["absent"]);
        assert_refused(&read(&scratch.join("absent/rank-0.tprof"), kind), &["absent"]);
    }
}

#[test]
fn an_empty_run_is_one_clear_error() {
    let scratch = Scratch::new();
    let folder = scratch.cwd();
    assert_refused(&read(&folder, "summary"), &["cwd"]);
    let file = scratch.write("rank-0.tprof", "");
    assert_refused(&read(&file, "summary"), &["rank-0.tprof", "empty"]);
    fs::write(folder.join("notes.txt"), "no run").unwrap();
    assert_refused(&read(&folder, "summary"), &["cwd"]);
}

#[test]
fn a_file_of_another_kind_is_one_clear_error() {
    let scratch = Scratch::new();
    for text in ["hello\n", "{\"settings\": []}", "\x7fELF", "TPROF", &"x".repeat(100_000)] {
        let file = scratch.write("some.tprof", text);
        assert_refused(&read(&file, "summary"), &["some.tprof"]);
    }
}

#[test]
fn a_truncated_file_is_read_up_to_the_damage() {
    let scratch = Scratch::new();
    let whole = fs::read(intact_run().join("rank-0.tprof")).unwrap();
    let cuts = (0..20).map(|n| n * whole.len() / 20).chain([1, 7, 8, 31, 32, 33, whole.len() - 1]);
    for cut in cuts {
        let (run, rank) = copy(&scratch);
        fs::write(&rank, &whole[..cut]).unwrap();
        assert_reported(&read(&run, "memory"), &format!("cut at {cut} of {}", whole.len()));
        assert_reported(&read(&rank, "summary"), &format!("the file alone, cut at {cut}"));
        fs::remove_dir_all(run).unwrap();
    }
}

#[test]
fn a_corrupted_file_is_reported_and_harms_nobody() {
    let scratch = Scratch::new();
    let whole = fs::read(intact_run().join("rank-0.tprof")).unwrap();
    for n in 0..60 {
        // Damages places spread over the file, including the header.
        let place = if n < 20 { n * 3 } else { (n * 7919) % whole.len() };
        let mut bytes = whole.clone();
        let end = (place + 1 + n % 5).min(bytes.len());
        for byte in &mut bytes[place..end] {
            *byte ^= 0x80 | n as u8;
        }
        let (run, rank) = copy(&scratch);
        let sound = read(&run, "memory");
        fs::write(&rank, bytes).unwrap();
        let damaged = read(&run, "memory");
        // Much information is stored twice, in block headers and in the index, so the report may be
        // unchanged. If it did change, it must say why.
        if damaged != sound {
            assert_reported(&damaged, &format!("bytes {place}..{end} of {} changed", whole.len()));
        }
        fs::remove_dir_all(run).unwrap();
    }
}

#[test]
fn a_newer_format_is_refused_naming_both() {
    let scratch = Scratch::new();
    let (run, rank) = copy(&scratch);
    let mut bytes = fs::read(&rank).unwrap();
    // After the mark of 8 bytes come the format's version and the oldest version that a reader must
    // support.
    bytes[8..12].copy_from_slice(&[99, 0, 98, 0]);
    fs::write(&rank, bytes).unwrap();
    assert_refused(&read(&rank, "summary"), &["99", "rank-0.tprof"]);
    assert_refused(&read(&run, "summary"), &["99"]);
}

#[test]
fn a_damaged_run_json_does_not_hide_the_rank_files() {
    let scratch = Scratch::new();
    for text in ["", "{", "[1, 2]", "{\"version\": 1, \"processes\": 7}", "\u{0}\u{0}\u{0}"] {
        let (run, _) = copy(&scratch);
        fs::write(run.join("run.json"), text).unwrap();
        let outcome = read(&run, "summary");
        assert_reported(&outcome, &format!("run.json is {text:?}"));
        assert_eq!(outcome.code, Some(0), "the rank file is whole: {outcome:?}");
    }
    let (run, _) = copy(&scratch);
    fs::remove_file(run.join("run.json")).unwrap();
    let outcome = read(&run, "summary");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_reported(&outcome, "no run.json");
}

#[test]
fn a_newer_run_json_is_refused_naming_both() {
    let scratch = Scratch::new();
    let (run, _) = copy(&scratch);
    let mut info: Value = serde_json::from_slice(&fs::read(run.join("run.json")).unwrap()).unwrap();
    info["version"] = 4711.into();
    fs::write(run.join("run.json"), info.to_string()).unwrap();
    let outcome = read(&run, "summary");
    assert!(format!("{outcome:?}").contains("4711"), "{outcome:?}");
    assert_reported(&outcome, "run.json of version 4711");
}

#[test]
fn exports_of_damaged_files_do_not_crash() {
    let scratch = Scratch::new();
    let whole = fs::read(intact_run().join("rank-0.tprof")).unwrap();
    for cut in [0, 40, whole.len() / 2, whole.len() - 1] {
        let (run, rank) = copy(&scratch);
        fs::write(&rank, &whole[..cut]).unwrap();
        for format in ["chrome", "folded"] {
            let outcome =
                tprof(["export", "--to", format, "-o", "out"]).arg(&run).run_in(scratch.cwd());
            assert!(matches!(outcome.code, Some(0 | 125)), "{format}, cut at {cut}: {outcome:?}");
        }
    }
}
