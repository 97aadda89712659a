//! Names of outputs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tprof_trace::{RankFile, RankLabel, RunDir};

use crate::ExportError;

/// Where an output goes that nobody named: into the run's directory, beside a
/// file that was given alone.
pub(crate) fn beside(run: &RunDir) -> PathBuf {
    if run.path().is_dir() {
        return run.path().to_path_buf();
    }
    run.path().parent().unwrap_or(Path::new("")).to_path_buf()
}

/// One path per file of a run: `DIR/rank-3SUFFIX`, or `output` itself if that
/// ends in `suffix` or `ending` and there is but one file.
pub(crate) fn per_rank(
    run: &RunDir,
    files: &[&RankFile],
    output: Option<&Path>,
    suffix: &str,
    ending: &str,
) -> Result<Vec<PathBuf>, ExportError> {
    if let Some(output) = output
        && output.to_string_lossy().ends_with(ending)
        && !output.is_dir()
    {
        if files.len() > 1 {
            let path = output.to_path_buf();
            return Err(ExportError::NotADirectory { path, files: files.len() });
        }
        return Ok(vec![output.to_path_buf()]);
    }
    let dir = output.map_or_else(|| beside(run), Path::to_path_buf);
    Ok(names(files).iter().map(|name| dir.join(format!("{name}{suffix}"))).collect())
}

/// Names of files, each its own: `rank-3`, `rank-3.1`, `launcher-HOST`.
pub(crate) fn names(files: &[&RankFile]) -> Vec<String> {
    let mut names: Vec<String> = files.iter().map(|file| name(file)).collect();
    let mut times: HashMap<String, usize> = HashMap::new();
    for name in &names {
        *times.entry(name.clone()).or_default() += 1;
    }
    for (name, file) in names.iter_mut().zip(files) {
        if times[name] > 1 {
            *name = stem(&file.path);
        }
    }
    names
}

fn name(file: &RankFile) -> String {
    match (&file.label, file.rank) {
        (RankLabel::Process(_), Some(rank)) => format!("rank-{rank}"),
        (RankLabel::Rank(rank, 0), _) => format!("rank-{rank}"),
        (RankLabel::Rank(rank, instance), _) => format!("rank-{rank}.{instance}"),
        _ => stem(&file.path),
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Creates the directory that holds `path`.
pub(crate) fn parent(path: &Path) -> Result<(), ExportError> {
    let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) else { return Ok(()) };
    let failed = |source| ExportError::Write { path: dir.to_path_buf(), source };
    std::fs::create_dir_all(dir).map_err(failed)
}
