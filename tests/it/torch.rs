//! Tests of finding causes in PyTorch jobs. No test installs PyTorch:
//! `TPROF_TEST_TORCH=/venv/bin/python` names a Python that has it.

use std::path::Path;

use serde_json::Value;
use tprof_tests::{Job, Refused, Scratch, document, skip, traced};

use crate::planted::Planted;

/// Runs a planted PyTorch job. Returns its findings, and its threads' names.
fn planted(way: &'static str, calm: bool) -> Option<(Planted, Vec<String>)> {
    let Some(python) = std::env::var_os("TPROF_TEST_TORCH") else {
        skip(Refused::PyTorch);
        return None;
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/planted_torch.py");
    let job = Job::new(python).arg("-B").arg(&source).arg(way);
    let job = if calm { job.arg("calm") } else { job };
    let scratch = Scratch::new();
    let run = traced(&job, &["--mem", "off"], &scratch);
    let planted = Planted::of(&run, source, way);
    if !planted.has_native() {
        skip(Refused::PerfEvents);
        return None;
    }
    let threads = document("threads", &run.run);
    let rows = threads["tables"]["threads"].as_array().unwrap();
    let name = |row: &Value| row["name"].as_str().unwrap_or_default().to_owned();
    Some((planted, rows.iter().map(name).collect()))
}

#[test]
fn a_slow_dataset_is_found_in_the_worker_that_reads_it() {
    let Some((planted, threads)) = planted("loader", false) else { return };
    planted.is_found("DataWait", "data", 0.1);
    let text = planted.text("DataWait");
    assert!(text.contains("Slow.__getitem__ (planted_torch.py:"), "{text}");
    assert!(threads.iter().any(|name| name == "DataLoader worker 0"), "{threads:?}");
}

#[test]
fn a_quick_dataset_is_not_waited_for() {
    let Some((planted, _)) = planted("loader", true) else { return };
    planted.lacks("DataWait");
}

#[test]
fn a_late_rank_of_gloo_is_named_with_the_line_that_delays_it() {
    let Some((planted, _)) = planted("ddp", false) else { return };
    planted.is_found("Stragglers", "late", 0.1);
    let row = planted.found("findings").iter().find(|row| row["rule"] == "Stragglers").unwrap();
    assert!(row["what"].as_str().unwrap().starts_with("rank 1 comes late"), "{row:#?}");
}

#[test]
fn ranks_of_gloo_that_come_together_have_no_straggler() {
    let Some((planted, _)) = planted("ddp", true) else { return };
    planted.lacks("Stragglers");
}
