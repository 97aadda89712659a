//! The run directory: made, joined by several collectors, or refused.

use crate::config::Config;
use crate::error::CollectError;
use crate::{ranks, sys};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tprof_trace::run::RunInfo;

/// Makes the run directory of a launch; path of its `run.json`.
///
/// A directory that holds a run is refused without `--force`, with one
/// exception: several launches that are ranks of one job share it, each rank once.
pub fn create(config: &Config) -> Result<PathBuf, CollectError> {
    let directory = &config.output;
    make(directory)?;
    let rank = ranks::read(&own_environment()).rank;
    let taken = match rank {
        Some(rank) => {
            run_files(directory)?.into_iter().filter(|name| is_of_rank(name, rank)).collect()
        }
        None => run_files(directory)?,
    };
    if !taken.is_empty() {
        if !config.force {
            return Err(CollectError::RunExists(directory.clone()));
        }
        if let Some(pid) = live_collector(directory, &taken) {
            return Err(CollectError::RunIsLive { path: directory.clone(), pid });
        }
        for name in &taken {
            let path = directory.join(name);
            fs::remove_file(&path).map_err(|source| CollectError::Unwritable { path, source })?;
        }
    }
    match claim(&directory.join("run.json")) {
        Err(CollectError::RunExists(_)) if rank.is_some() => join(directory),
        Err(CollectError::RunExists(_)) => Err(CollectError::RunExists(directory.clone())),
        other => other,
    }
}

/// Joins a run directory, made if need be; path of this collector's own info file.
pub fn join(directory: &Path) -> Result<PathBuf, CollectError> {
    make(directory)?;
    match claim(&directory.join("run.json")) {
        Err(CollectError::RunExists(_)) => {
            claim(&directory.join(format!("run-{}-{}.json", sys::host_name(), std::process::id())))
        }
        other => other,
    }
}

/// Takes back what [`create`] made, for a run that did not begin.
pub fn withdraw(directory: &Path, info: &Path) {
    let _ = fs::remove_file(info);
    let _ = fs::remove_dir(directory);
}

fn make(directory: &Path) -> Result<(), CollectError> {
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(directory) {
        Ok(()) => Ok(()),
        Err(_) if directory.exists() && !directory.is_dir() => {
            Err(CollectError::NotADirectory(directory.to_owned()))
        }
        Err(source) => Err(CollectError::Unwritable { path: directory.to_owned(), source }),
    }
}

/// Creates a file that must not exist: whoever succeeds owns the name.
fn claim(path: &Path) -> Result<PathBuf, CollectError> {
    let made = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path);
    match made {
        Ok(_) => Ok(path.to_owned()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            Err(CollectError::RunExists(path.to_owned()))
        }
        Err(source) => Err(CollectError::Unwritable { path: path.to_owned(), source }),
    }
}

/// Names in the directory that belong to a run.
fn run_files(directory: &Path) -> Result<Vec<String>, CollectError> {
    let unreadable = |source| CollectError::Unwritable { path: directory.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name().to_string_lossy().into_owned();
        let info = name == "run.json" || name.starts_with("run-") && name.ends_with(".json");
        if info || name.ends_with(".tprof") {
            names.push(name);
        }
    }
    Ok(names)
}

/// A collector of this host that is still at work on one of these runs.
fn live_collector(directory: &Path, names: &[String]) -> Option<u32> {
    names.iter().filter(|name| name.ends_with(".json")).find_map(|name| {
        let info: RunInfo = serde_json::from_slice(&fs::read(directory.join(name)).ok()?).ok()?;
        let comm =
            fs::read_to_string(format!("/proc/{}/comm", info.collector_pid)).unwrap_or_default();
        let lives = !info.finished && info.host == sys::host_name() && comm.starts_with("tprof");
        lives.then_some(info.collector_pid)
    })
}

fn is_of_rank(name: &str, rank: u32) -> bool {
    let stem = format!("rank-{rank}.");
    name.starts_with(&stem) && name.ends_with("tprof")
}

fn own_environment() -> Vec<u8> {
    fs::read("/proc/self/environ").unwrap_or_default()
}
