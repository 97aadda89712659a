//! Tests opening complete and incomplete run directories.

use crate::common;
use std::fs;
use std::path::Path;
use tprof_trace::run::{RUN_VERSION, RunInfo};
use tprof_trace::{RankLabel, RunDir, Start, TraceHeader, TraceWriter, info_text};

fn trace(directory: &Path, name: &str) {
    TraceWriter::create(&directory.join(name), &TraceHeader::default()).unwrap();
}

fn labels(run: &RunDir) -> Vec<(String, Option<u32>)> {
    run.files().iter().map(|file| (file.label.to_string(), file.rank)).collect()
}

#[test]
fn files_are_sorted_by_rank_then_launchers_then_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "rank-10.tprof",
        "launcher-a.tprof",
        "launcher-a.1.tprof",
        "launcher-b.1.tprof",
        "rank-2.1.tprof",
        "process-a-b-77.tprof",
        "rank-2.tprof",
    ] {
        trace(directory.path(), name);
    }
    fs::write(directory.path().join("notes.txt"), "mine").unwrap();
    let info = RunInfo { version: RUN_VERSION, host: "a".to_owned(), ..RunInfo::default() };
    for name in ["run.json", "run-b-9.json"] {
        fs::write(directory.path().join(name), info_text(&info).unwrap()).unwrap();
    }
    let run = RunDir::open(directory.path()).unwrap();
    let expected = [
        ("rank 2", Some(2)),
        ("rank 2, restart 1", Some(2)),
        ("rank 10", Some(10)),
        ("launcher on a", None),
        ("launcher 2 on a", None),
        // No `run.json` names a host `b`, so `b.1` may be a host's whole name.
        ("launcher on b.1", None),
        ("process a-b-77", None),
    ];
    assert_eq!(labels(&run), expected.map(|(label, rank)| (label.to_owned(), rank)));
    assert_eq!((run.infos().len(), run.problems().len()), (2, 0));
}

#[test]
fn a_single_file_without_a_rank_counts_as_rank_0() {
    let directory = tempfile::tempdir().unwrap();
    trace(directory.path(), "process-a-77.tprof");
    let run = RunDir::open(directory.path()).unwrap();
    assert_eq!(labels(&run), [("process a-77".to_owned(), Some(0))]);
    assert!(run.problems()[0].what.contains("no `run.json`"));
}

#[test]
fn a_damaged_or_newer_run_json_is_a_problem_not_an_error() {
    let directory = tempfile::tempdir().unwrap();
    trace(directory.path(), "rank-0.tprof");
    for (text, why) in [
        ("{\"version\": 1, ", "EOF"),
        ("{\"version\": 99, \"tprof\": \"9.0\", \"collector_pid\": 7}", "version 99"),
        ("\"text\"", "no tprof wrote it"),
    ] {
        fs::write(directory.path().join("run.json"), text).unwrap();
        let run = RunDir::open(directory.path()).unwrap();
        assert_eq!((run.infos().len(), run.problems().len()), (0, 1));
        assert!(run.problems()[0].what.contains(why), "{:?}", run.problems());
    }
}

#[test]
fn a_single_file_opens_as_a_run_with_its_rank() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("renamed.tprof");
    TraceWriter::create(&path, &common::header()).unwrap();
    let run = RunDir::open(&path).unwrap();
    assert_eq!(run.files()[0].label, RankLabel::Rank(3, Start::Restart(1)));
    assert_eq!(run.problems(), []);
}

#[test]
fn a_path_that_is_not_a_run_is_refused_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let refuse = |path: &Path| RunDir::open(path).unwrap_err().to_string();
    assert!(refuse(directory.path()).ends_with("the directory is empty"));
    assert!(refuse(&directory.path().join("none")).starts_with("cannot open"));
    let notes = directory.path().join("notes.txt");
    fs::write(&notes, "mine").unwrap();
    assert!(refuse(directory.path()).contains("neither a trace file"));
    assert!(refuse(&notes).contains("is not a tprof file"));
    fs::write(directory.path().join("run.json"), "{").unwrap();
    let both = refuse(directory.path());
    assert!(both.contains("no trace file") && both.contains("run.json"), "{both}");
}

#[test]
fn only_file_names_that_tprof_makes_are_parsed() {
    for name in ["rank-.tprof", "rank-x.tprof", "rank-1.2.3.tprof", "rank-1.json", "other.tprof"] {
        assert_eq!(RankLabel::of_name(name), None, "{name}");
    }
    assert_eq!(RankLabel::of_name("rank-7.2.tprof"), Some(RankLabel::Rank(7, Start::Restart(2))));
}
