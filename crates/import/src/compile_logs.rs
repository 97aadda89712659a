//! Recognizes logs of `torch.compile`, and stores them in the run.
//!
//! The logs stay as PyTorch wrote them, but compressed, in one directory per rank, where reports
//! read them. If a rank has a log but no trace, its file contains only its processes.

use crate::content::{self, Content};
use crate::error::ImportError;
use crate::names::file_name;
use crate::source::ReadUntilDamage;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use tprof_facts::compile::rank_of_name;
use tprof_facts::units::{bytes, counted};
use tprof_trace::compile_log::{self, Bounds, COMPILE_DIRECTORY, CompileLog, KEPT_ENDING};

/// Name endings of logs.
pub(crate) const LOGS: &[&str] = &[".log", ".log.gz", ".log.zst"];

/// Whether a file is a log.
pub(crate) fn is_log(path: &Path) -> bool {
    content::of_file(path) == Some(Content::Log)
}

/// Opens the text of a file, plain or compressed, up to where it is damaged.
fn text_of(path: &Path) -> std::io::Result<BufReader<ReadUntilDamage>> {
    Ok(BufReader::with_capacity(256 << 10, ReadUntilDamage::open(path)?))
}

/// A log that was read.
pub(crate) struct FoundLog {
    pub path: PathBuf,
    pub log: CompileLog,
    /// The rank that the log names.
    rank: Option<u32>,
    /// Description of the damage, if the file is damaged. The log was read up to the damage.
    pub damage: Option<String>,
}

/// Reads logs, up to the same bounds as reports.
pub(crate) fn read(paths: &[PathBuf], limit: u64) -> Result<Vec<FoundLog>, ImportError> {
    let bounds = Bounds::default();
    let bounds = Bounds { text: bounds.text.min(limit), ..bounds };
    let one = |path: &PathBuf| {
        let failed = |source| ImportError::Io { path: path.clone(), what: "read", source };
        let mut text = text_of(path).map_err(failed)?;
        let log = compile_log::read(&mut text, bounds).map_err(failed)?;
        let damage = text.into_inner().damage;
        if log.is_read_in_part && bounds.text == limit {
            return Err(ImportError::TooLarge { path: path.clone(), limit });
        }
        let rank = rank_of_name(path).or(log.rank);
        Ok(FoundLog { path: path.clone(), log, rank, damage })
    };
    paths.iter().map(one).collect()
}

/// Groups logs by rank. Logs that name no rank belong to the run's only rank. If there are several
/// ranks, they belong to rank 0, and a note says so.
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
            // Files in two directories may have the same name, so add a number.
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
