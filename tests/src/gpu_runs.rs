//! Finds runs of real GPU jobs: those in `gpu-runs`, and larger ones among the real traces if these
//! are on this machine.

use std::path::{Path, PathBuf};

/// Returns the folder of real traces, which are not part of the sources.
fn real_data() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    std::env::var_os("TPROF_SHARED_DATA").map_or(beside, PathBuf::from)
}

/// Returns the run of this name; `None` if it is not on this machine.
pub fn gpu_run(name: &str) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu-runs");
    let folders = [own, real_data().join("gpu-h200/runs")];
    let mut runs = folders.iter().map(|folder| folder.join(name));
    runs.find(|run| run.join("run.json").is_file())
}

/// Returns all runs in `gpu-runs`, in order of their names.
pub fn gpu_runs() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu-runs");
    let entries = std::fs::read_dir(own).unwrap().map(|entry| entry.unwrap().path());
    let mut runs: Vec<PathBuf> = entries.filter(|run| run.join("run.json").is_file()).collect();
    runs.sort();
    runs
}

/// Returns the folders of PyTorch's traces, in order of their names; empty if the real traces are
/// not on this machine.
pub fn real_traces() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(real_data().join("kineto")).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    folders.sort();
    folders
}
