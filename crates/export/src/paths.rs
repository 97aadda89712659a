//! Chooses the names of outputs.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use tprof_trace::{RankFile, RankLabel, RunDir, Start};

use crate::ExportError;
use crate::output::is_stdout;

/// Returns the directory for an output without a name: the run's directory, or the directory of a
/// run that is a single file.
pub fn default_directory(run: &RunDir) -> PathBuf {
    if run.path().is_dir() {
        return run.path().to_path_buf();
    }
    run.path().parent().unwrap_or(Path::new("")).to_path_buf()
}

/// Returns `output` as the only path. Returns an error if the run has several files.
pub(crate) fn one_file(files: &[&RankFile], output: &Path) -> Result<Vec<PathBuf>, ExportError> {
    let path = output.to_path_buf();
    match files.len() {
        0 | 1 => Ok(vec![path]),
        files => Err(ExportError::NotADirectory { path, files }),
    }
}

/// Returns one path per file of a run: `DIR/rank-3SUFFIX`. If there is only one file and `output`
/// ends in one of `endings`, returns `output` itself.
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
    let dir = output.map_or_else(|| default_directory(run), Path::to_path_buf);
    Ok(names(files).iter().map(|name| dir.join(format!("{name}{suffix}"))).collect())
}

/// Returns a different name for each file: `rank-3`, `rank-3.1`, `launcher-HOST`.
pub fn names(files: &[&RankFile]) -> Vec<String> {
    let names: Vec<String> = files.iter().map(|file| name(file)).collect();
    let mut seen = HashSet::new();
    // File names differ, but a label may equal another file's name. So use labels for all files, or
    // for none.
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

/// Returns an error if the parent directory is missing. Creating it would turn a typo into a
/// directory.
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

/// Creates the directory of the files `paths`. The directory's parent must exist.
pub(crate) fn create_directory_of(paths: &[PathBuf]) -> Result<(), ExportError> {
    let Some(dir) = paths.first().and_then(|path| path.parent()) else { return Ok(()) };
    if dir.as_os_str().is_empty() || dir.is_dir() {
        return Ok(());
    }
    parent(dir)?;
    let failed = |source| ExportError::Write { path: dir.to_path_buf(), source };
    std::fs::create_dir(dir).map_err(failed)
}
