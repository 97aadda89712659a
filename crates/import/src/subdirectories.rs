//! Finds subdirectories of an imported directory that contain something to import. An import
//! doesn't read them, so a note must list them.

use crate::compile_logs::{LOGS, is_log};
use crate::names::{TRACES, has_name};
use std::fs;
use std::path::{Path, PathBuf};

/// Largest depth to search.
const DEEPEST: u32 = 8;

/// Returns a note about skipped subdirectories.
pub(crate) fn skipped(directory: &Path, paths: &[PathBuf]) -> Option<String> {
    let within = directories(directory, paths);
    let (count, path, first) = (within.len(), directory.display(), within.first()?.display());
    let directories = if count == 1 { "directory" } else { "directories" };
    Some(format!(
        "{count} {directories} with traces in `{path}` skipped; to import them too: tprof import \
         {path} {first}"
    ))
}

/// Returns subdirectories that contain traces or logs of `torch.compile` and that the user didn't
/// name as inputs.
pub(crate) fn directories(directory: &Path, paths: &[PathBuf]) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut found: Vec<PathBuf> = directories
        .map(|entry| entry.path())
        .filter(|path| !paths.contains(path) && holds_some(path, DEEPEST))
        .collect();
    found.sort();
    found
}

/// Whether a directory that is not a run contains a trace or a log at any depth.
fn holds_some(directory: &Path, deep: u32) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return false };
    let entries: Vec<_> = entries.flatten().collect();
    let is_plausible_time = |entry: &fs::DirEntry| {
        has_name(&entry.path(), &[".tprof"]) || entry.file_name() == "run.json"
    };
    if entries.iter().any(is_plausible_time) {
        return false;
    }
    entries.iter().any(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => deep > 0 && holds_some(&entry.path(), deep - 1),
        _ => {
            let path = entry.path();
            has_name(&path, TRACES) || has_name(&path, LOGS) && is_log(&path)
        }
    })
}
