//! `report gpu-time` divides the window of each device completely: the parts add up to the window
//! to the nanosecond, in runs that tprof recorded and in traces of torch.profiler.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tprof_tests::{Refused, document, gpu_runs, real_traces, skip};

const PARTS: [&str; 4] = ["compute", "communication", "copies", "idle"];

/// Runs without device work: one only allocates device memory, the other has only counters.
const NO_WORK: [&str; 2] = ["oom", "cupti_counters"];

/// Returns the faults in the division of a run's device time.
fn faults(run: &Path) -> Vec<String> {
    let report = document("gpu-time", run);
    let rows = |table: &str| report["tables"][table].as_array().cloned().unwrap_or_default();
    let device = |row: &Value| (row["rank"].to_string(), row["device"].as_u64());
    let mut sums: BTreeMap<_, u64> = BTreeMap::new();
    let mut faults = Vec::new();
    let windows: BTreeMap<_, u64> = rows("windows")
        .iter()
        .map(|row| (device(row), row["window_ns"].as_u64().unwrap_or(0)))
        .collect();
    for row in rows("parts") {
        let (of, part) = (device(&row), row["part"].as_str().unwrap_or_default());
        let ns = row["ns"].as_u64().unwrap_or_else(|| panic!("no whole ns in {row}"));
        let is_known = PARTS.contains(&part) && row["cause"].is_string() == (part == "idle");
        let share = windows.get(&of).map_or(0.0, |window| ns as f64 / (*window).max(1) as f64);
        *sums.entry(of).or_default() += ns;
        if !is_known || (row["share"].as_f64().unwrap_or(-1.0) - share).abs() > 1e-9 {
            faults.push(format!("a row is wrong in part, cause or share: {row}"));
        }
    }
    if windows.is_empty() && !NO_WORK.iter().any(|name| run.ends_with(name)) {
        faults.push("no device has a window".to_owned());
    }
    if sums != windows {
        faults.push(format!("parts add up to {sums:?}, and the windows are {windows:?}"));
    }
    faults
}

/// Checks that the parts add up in each of these runs or traces. Names all runs in which they
/// don't.
#[track_caller]
fn assert_add_up(runs: &[PathBuf]) {
    let wrong = |run: &PathBuf| {
        let faults = faults(run);
        (!faults.is_empty()).then(|| format!("{}: {}", run.display(), faults.join("\n  ")))
    };
    let wrong: Vec<String> = runs.iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), runs.len(), wrong.join("\n"));
}

#[test]
fn parts_of_a_device_add_up_in_real_runs() {
    let runs = gpu_runs();
    assert_eq!(runs.len(), 12, "{runs:?}");
    assert_add_up(&runs);
}

#[test]
fn parts_of_a_device_add_up_in_real_traces() {
    let traces = real_traces();
    if traces.is_empty() {
        return skip(Refused::RealTraces);
    }
    assert_add_up(&traces);
}
