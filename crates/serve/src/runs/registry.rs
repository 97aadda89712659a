//! Finds runs by scanning the given paths, and gives each a number that stays the same until the
//! server ends.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Entry, Stamp};
use crate::failure::Failure;

/// A scan younger than this is not repeated.
const FRESH: Duration = Duration::from_millis(500);
/// A run in progress is read again after this time even if its files are unchanged: its collector
/// may have been killed, and then it is no longer in progress.
const LIVE: Duration = Duration::from_secs(2);
/// Largest number of listed runs.
const MAX_RUNS: usize = 20_000;

/// A run of the registry.
#[derive(Clone, Debug)]
pub struct RegisteredRun {
    /// Number of the run, from 1.
    pub id: u32,
    /// State of the run's files when its entry was read.
    pub stamp: Stamp,
    /// The facts that are known without reading events.
    pub entry: Arc<Entry>,
}

impl RegisteredRun {
    /// Returns the run's path if its files may be read, which means that no link leads out of it.
    pub fn readable(&self) -> Result<&Path, Failure> {
        match &self.entry.refused {
            None => Ok(&self.entry.path),
            Some(why) => Err(Failure::new("the run is not read", why)
                .status(axum::http::StatusCode::FORBIDDEN)
                .hint("put the files themselves into the run's directory")),
        }
    }
}

#[derive(Debug)]
struct Known {
    found: RegisteredRun,
    read: Instant,
}

#[derive(Debug, Default)]
struct State {
    numbers: HashMap<PathBuf, u32>,
    known: HashMap<PathBuf, Known>,
    /// Runs in the order of the list.
    listed: Vec<RegisteredRun>,
    scanned: Option<Instant>,
    left_out: usize,
}

/// All runs that were found.
#[derive(Debug)]
pub struct Registry {
    roots: Vec<PathBuf>,
    state: Mutex<State>,
}

impl Registry {
    /// Creates the registry of existing runs or directories of runs. `usage` is the hint in the
    /// error about a path that does not exist.
    pub fn of(paths: &[PathBuf], usage: &str) -> Result<Registry, Failure> {
        let roots = paths.iter().map(|path| existing(path, usage)).collect::<Result<_, _>>()?;
        Ok(Registry { roots, state: Mutex::default() })
    }

    /// Returns the paths that were given.
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// Returns the runs, newest first, and the number of runs beyond the limit.
    pub fn list(&self) -> (Vec<RegisteredRun>, usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.scanned.is_none_or(|at| at.elapsed() >= FRESH) {
            self.scan(&mut state);
        }
        (state.listed.clone(), state.left_out)
    }

    /// Returns a run by number, as its files are now; `None` if it does not exist or was deleted.
    pub fn get(&self, id: u32) -> Option<RegisteredRun> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.scanned.is_none() {
            self.scan(&mut state);
        }
        let path = state.listed.iter().find(|found| found.id == id)?.entry.path.clone();
        state.look_at(&path)
    }

    /// Discards the last scan, because a run was deleted or got notes.
    pub fn forget(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).scanned = None;
    }

    fn scan(&self, state: &mut State) {
        let mut paths: Vec<PathBuf> = Vec::new();
        for root in &self.roots {
            // A given path is either a run or a directory of runs.
            match state.look_at(root) {
                Some(_) => paths.push(root.clone()),
                None => paths.extend(directories(root)),
            }
        }
        paths.sort();
        paths.dedup();
        let left_out = paths.len().saturating_sub(MAX_RUNS);
        let mut listed: Vec<RegisteredRun> =
            paths.iter().filter_map(|path| state.look_at(path)).take(MAX_RUNS).collect();
        listed.sort_by(|a, b| {
            let start = |found: &RegisteredRun| found.entry.start_unix_ns;
            start(b).cmp(&start(a)).then_with(|| a.entry.path.cmp(&b.entry.path))
        });
        state.known.retain(|path, _| paths.binary_search(path).is_ok());
        state.left_out = left_out;
        state.listed = listed;
        state.scanned = Some(Instant::now());
    }
}

impl State {
    /// Returns the run at a path. Reads it again if its files have changed.
    fn look_at(&mut self, path: &Path) -> Option<RegisteredRun> {
        if let Some(known) = self.known.get(path) {
            let is_settled = known.found.entry.state != "running" || known.read.elapsed() < LIVE;
            if known.found.stamp == Stamp::of(path) && is_settled {
                return Some(known.found.clone());
            }
        }
        // The stamp is taken before the entry is read. If a file changes in between, the stamp is
        // old, and the next call reads the entry again.
        let stamp = Stamp::of_run(path)?;
        let entry = Entry::read(path)?;
        let next = self.numbers.len() as u32 + 1;
        let id = *self.numbers.entry(path.to_owned()).or_insert(next);
        let found = RegisteredRun { id, stamp, entry: Arc::new(entry) };
        self.known.insert(path.to_owned(), Known { found: found.clone(), read: Instant::now() });
        Some(found)
    }
}

fn existing(path: &Path, usage: &str) -> Result<PathBuf, Failure> {
    let shown = path.display();
    let what = format!("cannot read the runs of `{shown}`");
    let found = path.canonicalize().map_err(|error| {
        Failure::new(what.clone(), error)
            .hint(format!("{usage}, with the directory that contains the runs"))
    })?;
    if !found.is_dir() {
        let hint = match path.extension().is_some_and(|end| end == "tprof") {
            true => format!("{usage}, with the directory of the file"),
            false => format!("tprof import {shown} -o RUN; {}", usage.replace("DIR", "RUN")),
        };
        return Err(Failure::new(what, "the path is a file").hint(hint));
    }
    // An unreadable directory is an error here, because later it would look like one without runs.
    match fs::read_dir(&found) {
        Ok(_) => Ok(found),
        Err(error) => Err(Failure::new(what, error).hint("a directory that you may read")),
    }
}

/// Returns the directories in a directory. Links are left out, because they could lead out of it.
/// The user can name a run elsewhere directly.
fn directories(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_directory).map(|entry| entry.path()).collect()
}
