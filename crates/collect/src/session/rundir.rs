//! The run directory: made, joined by several collectors of one job, or refused.

use crate::config::Config;
use crate::error::CollectError;
use crate::os::proc;
use crate::os::sys;
use crate::out::ranks;
use crate::session::job::{JobId, Relation};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tprof_trace::live::{collector_lives, further_info, is_fresh};
use tprof_trace::run::RunInfo;

/// Makes the run directory of a launch; path of its `run.json`.
///
/// A directory that holds a run is refused without `--force`, with one exception:
/// several launches that are ranks of one job share it, each rank once. They are
/// while a collector of that run is at work, or where both name the same job.
pub fn create(config: &Config) -> Result<PathBuf, CollectError> {
    let directory = &config.output;
    make(directory)?;
    let rank = ranks::read(&own_environment()).rank;
    // Once more if another rank was quicker to begin the run.
    for _ in 0..2 {
        let found = Found::read(directory)?;
        if found.names.is_empty() {
            match claim(&directory.join("run.json")) {
                Err(CollectError::RunExists(_)) => continue,
                other => return other,
            }
        }
        let refused = match rank {
            Some(rank) => found.joined_by(rank, directory, config.force),
            None => Err(CollectError::RunExists(directory.clone())),
        };
        return match refused {
            Ok(()) => join(directory),
            Err(_) if config.force => {
                found.remove(directory, |_| true)?;
                join(directory)
            }
            Err(error) => Err(error),
        };
    }
    Err(CollectError::RunExists(directory.clone()))
}

/// Refuses a directory that holds a run which is over, unless it is of this job, or takes
/// that run away under `--force`: for processes that will be recorded later.
pub fn free(config: &Config) -> Result<(), CollectError> {
    let directory = &config.output;
    if !directory.exists() {
        return Ok(());
    }
    if !directory.is_dir() {
        return Err(CollectError::NotADirectory(directory.clone()));
    }
    let found = Found::read(directory)?;
    let rank = ranks::read(&own_environment()).rank;
    let joins = || rank.is_some_and(|rank| found.joined_by(rank, directory, false).is_ok());
    match found.names.is_empty() || found.begins || found.live(directory).is_some() || joins() {
        true => Ok(()),
        false if config.force => found.remove(directory, |_| true),
        false => Err(CollectError::RunExists(directory.clone())),
    }
}

/// Joins a run directory, made if need be; path of this collector's own info file.
pub fn join(directory: &Path) -> Result<PathBuf, CollectError> {
    make(directory)?;
    match claim(&directory.join("run.json")) {
        Err(CollectError::RunExists(_)) => {
            claim(&directory.join(further_info(&sys::host_name(), std::process::id())))
        }
        other => other,
    }
}

/// Takes back what [`create`] made, for a run that did not begin.
pub fn withdraw(directory: &Path, info: &Path) {
    let _ = fs::remove_file(info);
    let _ = fs::remove_dir(directory);
}

/// A run that a directory holds.
struct Found {
    /// Names of its files.
    names: Vec<String>,
    /// What its collectors wrote of it.
    infos: Vec<RunInfo>,
    /// A collector is about to write.
    begins: bool,
}

impl Found {
    fn read(directory: &Path) -> Result<Found, CollectError> {
        let names = run_files(directory)?;
        let (mut infos, mut begins) = (Vec::new(), false);
        for name in names.iter().filter(|name| name.ends_with(".json")) {
            let path = directory.join(name);
            let text = fs::read(&path).unwrap_or_default();
            match serde_json::from_slice(&text) {
                Ok(info) => infos.push(info),
                Err(_) => begins |= text.is_empty() && is_fresh(&path),
            }
        }
        Ok(Found { names, infos, begins })
    }

    /// A collector that is at work on it.
    fn live(&self, directory: &Path) -> Option<&RunInfo> {
        self.infos.iter().find(|info| collector_lives(info, directory))
    }

    /// Whether a rank may record into it; under `--force` in place of itself.
    fn joined_by(&self, rank: u32, directory: &Path, force: bool) -> Result<(), CollectError> {
        let own = JobId::own();
        let relations: Vec<_> = self.infos.iter().map(|info| own.relation(info)).collect();
        let live = self.live(directory).is_some() || self.begins;
        if relations.contains(&Relation::Other) || !live && !relations.contains(&Relation::Same) {
            return Err(CollectError::OtherJob {
                path: directory.to_owned(),
                known: relations.contains(&Relation::Other),
            });
        }
        let is_own = |name: &str| is_of_rank(name, rank);
        match self.names.iter().any(|name| is_own(name)) {
            true if own.is_restarted() && relations.contains(&Relation::Same) => Ok(()),
            true if force => self.remove(directory, is_own),
            true => Err(CollectError::RunExists(directory.to_owned())),
            false => Ok(()),
        }
    }

    /// Takes files away, unless a collector is at work on them.
    fn remove(&self, directory: &Path, which: impl Fn(&str) -> bool) -> Result<(), CollectError> {
        let names: Vec<_> = self.names.iter().filter(|name| which(name)).collect();
        let writes = |info: &&RunInfo| {
            names.len() == self.names.len() || info.files.iter().any(|file| names.contains(&file))
        };
        let live = self.infos.iter().filter(|info| collector_lives(info, directory)).find(writes);
        if let Some(info) = live {
            let (path, pid) = (directory.to_owned(), info.collector_pid);
            return Err(CollectError::RunIsLive { path, pid });
        }
        for name in names {
            let path = directory.join(name);
            match fs::remove_file(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                other => other.map_err(|source| CollectError::Unwritable { path, source })?,
            }
        }
        Ok(())
    }
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

/// Creates a file that must not exist: the process that succeeds owns the name.
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

fn is_of_rank(name: &str, rank: u32) -> bool {
    let stem = format!("rank-{rank}.");
    name.starts_with(&stem) && name.ends_with("tprof")
}

fn own_environment() -> Vec<u8> {
    proc::environment_of(std::process::id())
}
