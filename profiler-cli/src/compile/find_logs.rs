//! Finds logs by their names.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use tprof_trace::compile_log::LOG_PREFIX;

/// Returns the paths of PyTorch's logs in a directory, sorted.
pub fn logs_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_log = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with(LOG_PREFIX) && name.ends_with(".log")
    };
    let mut logs: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_log).collect();
    logs.sort();
    logs
}
