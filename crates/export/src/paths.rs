//! Chooses the names of outputs.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use tprof_trace::{RankFile, RankLabel, RunDir, Start};

use crate::ExportError;
use crate::output::is_stdout;

/// Returns where an output without a name goes: into the run's directory, or next to a single file.
pub fn beside(run: &RunDir) -> PathBuf {
    if run.path().is_dir() {
        return run.path().to_path_buf();
    }
    run.path().parent().unwrap_or(Path::new("")).to_path_buf()
}

/// Returns `output` itself, for a run of one file.
pub(crate) fn one_file(files: &[&RankFile], output: &Path) -> Result<Vec<PathBuf>, ExportError> {
    let path = output.to_path_buf();
    match files.len() {
        0 | 1 => Ok(vec![path]),
        files => Err(ExportError::NotADirectory { path, files }),
    }
}

/// Returns one path per file of a run: `DIR/rank-3SUFFIX`, or `output` itself if that ends in one
/// of `endings` and there is only one file.
pub(crate) fn per_rank(
    run: &RunDir,
    files: &[&RankFile],
    output: Option<&Path>,
    suffix: &str,
    endings: &[&str],
) -> Result<Vec<PathBuf>, ExportError> {
    let is_file = |output: &&Path| {
        let name = output.to_string_lossy();
        endings.iter().any(|ending| name.ends_with(ending)) && !output.is_dir()
    };
    if let Some(output) = output.filter(is_file) {
        return one_file(files, output);
    }
    let dir = output.map_or_else(|| beside(run), Path::to_path_buf);
    Ok(names(files).iter().map(|name| dir.join(format!("{name}{suffix}"))).collect())
}

/// Returns a distinct name for each file: `rank-3`, `rank-3.1`, `launcher-HOST`.
pub fn names(files: &[&RankFile]) -> Vec<String> {
    let names: Vec<String> = files.iter().map(|file| name(file)).collect();
    let mut seen = HashSet::new();
    // Files' own names are distinct, but a label may equal another file's name. So either all use
    // labels or none does.
    match names.iter().all(|name| seen.insert(name)) {
        true => names,
        false => files.iter().map(|file| stem(&file.path)).collect(),
    }
}

fn name(file: &RankFile) -> String {
    match (&file.label, file.rank) {
        (RankLabel::Process(_), Some(rank)) => format!("rank-{rank}"),
        (RankLabel::Rank(rank, Start::First), _) => format!("rank-{rank}"),
        (RankLabel::Rank(rank, Start::Restart(n)), _) => format!("rank-{rank}.{n}"),
        (RankLabel::Rank(rank, Start::Launch(n)), _) => format!("rank-{rank}-launch-{n}"),
        _ => stem(&file.path),
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Refuses a path in a missing directory, so that a typo does not create one.
pub fn parent(path: &Path) -> Result<(), ExportError> {
    if is_stdout(path) {
        return Ok(());
    }
    match path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        Some(dir) if !dir.is_dir() => {
            Err(ExportError::NoDirectory { path: path.to_path_buf(), directory: dir.to_path_buf() })
        }
        _ => Ok(()),
    }
}

/// Creates the directory that holds the files of `paths`; its parent must exist.
pub(crate) fn directory_of(paths: &[PathBuf]) -> Result<(), ExportError> {
    let Some(dir) = paths.first().and_then(|path| path.parent()) else { return Ok(()) };
    if dir.as_os_str().is_empty() || dir.is_dir() {
        return Ok(());
    }
    parent(dir)?;
    let failed = |source| ExportError::Write { path: dir.to_path_buf(), source };
    std::fs::create_dir(dir).map_err(failed)
}
