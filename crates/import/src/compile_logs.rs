//! Logs of `torch.compile`: which of the paths are some, and their place in the run.
//!
//! They stay as PyTorch wrote them, compressed, in a directory for each rank: reports read them
//! there. A rank that has nothing else becomes a file with only its process.

use crate::error::ImportError;
use crate::names::{file_name, has_name, is_trace_or_snapshot};
use flate2::bufread::MultiGzDecoder;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use tprof_facts::compile::rank_of_name;
use tprof_facts::units::{bytes, counted};
use tprof_trace::compile_log::{
    self, Bounds, COMPILE_DIRECTORY, CompileLog, KEPT_ENDING, LOG_PREFIX,
};

/// Endings of names of logs.
const LOGS: &[&str] = &[".log", ".log.gz", ".log.zst"];
/// Bytes that show whether a file is a log.
const HEAD_BYTES: u64 = 4 << 10;

/// Whether a file is a log, by its name and its beginning.
pub(crate) fn is_log(path: &Path) -> bool {
    has_name(path, LOGS) && fs::metadata(path).is_ok_and(|about| about.is_file()) && {
        let mut head = Vec::new();
        let read = text_of(path).and_then(|text| text.take(HEAD_BYTES).read_to_end(&mut head));
        read.is_ok() && compile_log::is_compile_log(&head)
    }
}

/// Whether a directory has logs, by their names.
pub(crate) fn has_logs(directory: &Path) -> bool {
    !in_directory(directory).is_empty()
}

/// Separates logs from other paths. A directory that has only logs is none of the others.
pub(crate) fn separate(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut logs, mut others) = (BTreeSet::new(), Vec::new());
    for path in paths {
        match path.is_dir() {
            true => {
                let found = in_directory(path);
                if found.is_empty() || has_others(path) {
                    others.push(path.clone());
                }
                logs.extend(found);
            }
            false if is_log(path) => {
                logs.insert(path.clone());
            }
            false => others.push(path.clone()),
        }
    }
    (logs.into_iter().collect(), others)
}

fn in_directory(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut found: Vec<PathBuf> =
        paths.filter(|path| is_named_log(path)).filter(|path| is_log(path)).collect();
    found.sort();
    found
}

/// Whether a file has the name that PyTorch gives a log.
pub(crate) fn is_named_log(path: &Path) -> bool {
    file_name(path).starts_with(LOG_PREFIX) && has_name(path, LOGS)
}

/// Whether a directory has something else to import.
fn has_others(directory: &Path) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| is_trace_or_snapshot(&path) && !path.is_dir())
}

/// The text of a file, plain or compressed.
fn text_of(path: &Path) -> std::io::Result<Box<dyn BufRead>> {
    if has_name(path, &[".gz"]) {
        let file = BufReader::with_capacity(64 << 10, tprof_trace::open_input(path)?);
        return Ok(Box::new(BufReader::with_capacity(256 << 10, MultiGzDecoder::new(file))));
    }
    compile_log::text(path)
}

/// A log that was read.
pub(crate) struct FoundLog {
    pub path: PathBuf,
    pub log: CompileLog,
    /// The rank that it names.
    rank: Option<u32>,
}

/// Reads logs, as far as reports do.
pub(crate) fn read(paths: &[PathBuf], limit: u64) -> Result<Vec<FoundLog>, ImportError> {
    let bounds = Bounds::default();
    let bounds = Bounds { text: bounds.text.min(limit), ..bounds };
    let one = |path: &PathBuf| {
        let failed = |source| ImportError::Io { path: path.clone(), what: "read", source };
        let log = compile_log::read(text_of(path).map_err(failed)?, bounds).map_err(failed)?;
        if log.is_read_in_part && bounds.text == limit {
            return Err(ImportError::TooLarge { path: path.clone(), limit });
        }
        let rank = rank_of_name(path).or(log.rank);
        Ok(FoundLog { path: path.clone(), log, rank })
    };
    paths.iter().map(one).collect()
}

/// Logs by rank. Those that name none are of the only rank there is, else of rank 0, with a note.
pub(crate) fn by_rank(
    logs: Vec<FoundLog>,
    traces: &BTreeSet<u32>,
    notes: &mut Vec<String>,
) -> BTreeMap<u32, Vec<FoundLog>> {
    let named: BTreeSet<u32> =
        logs.iter().filter_map(|log| log.rank).chain(traces.iter().copied()).collect();
    let default = if named.len() == 1 { named.first().copied().unwrap_or(0) } else { 0 };
    let mut ranks: BTreeMap<u32, Vec<FoundLog>> = BTreeMap::new();
    for log in logs {
        if log.rank.is_none() && named.len() > 1 {
            notes.push(format!("`{}` names no rank: taken as of rank 0", log.path.display()));
        }
        ranks.entry(log.rank.unwrap_or(default)).or_default().push(log);
    }
    ranks
}

/// Copies logs into a run's directory.
pub(crate) fn keep(
    ranks: &BTreeMap<u32, Vec<FoundLog>>,
    run: &Path,
    limit: u64,
    notes: &mut Vec<String>,
) -> Result<(), ImportError> {
    for (rank, logs) in ranks {
        let directory = run.join(COMPILE_DIRECTORY).join(format!("rank-{rank}"));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ImportError::Io { path, what: "create", source }
        };
        fs::create_dir_all(&directory).map_err(failed(&directory))?;
        for (number, found) in logs.iter().enumerate() {
            let name = file_name(&found.path);
            let stem = LOGS.iter().rev().find_map(|ending| name.strip_suffix(ending));
            // Two directories may have files of one name.
            let name = format!("{number}-{}.log{KEPT_ENDING}", stem.unwrap_or(&name));
            let to = directory.join(name);
            let text = text_of(&found.path).map_err(failed(&found.path))?;
            let kept = Bounds::default().text;
            let text = text.take(limit.saturating_add(1));
            let beyond = compile_log::keep(text, &to, kept).map_err(failed(&to))?;
            if beyond > limit.saturating_sub(kept) {
                return Err(ImportError::TooLarge { path: found.path.clone(), limit });
            }
            if beyond > 0 {
                notes.push(format!(
                    "`{}`: {} beyond the first {} are not kept",
                    found.path.display(),
                    bytes(beyond),
                    bytes(kept)
                ));
            }
            let compiled = found.log.frames.iter().filter(|frame| !frame.is_backward).count();
            notes.push(format!(
                "`{}`: {} by torch.compile, rank {rank}: tprof report compile",
                found.path.display(),
                counted(compiled as u64, "compilation", "compilations")
            ));
        }
    }
    Ok(())
}
