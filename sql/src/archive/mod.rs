//! Archives of runs: tables in a directory or an object store.
//!
//! An archive only grows, by whole runs, and nothing in it is ever changed or deleted. [`names`] has
//! its layout, [`commit`] what makes a run a part of it.

pub mod client;
pub mod commit;
pub mod failure;
pub mod location;
pub mod names;

use std::ffi::OsStr;
use std::sync::Arc;

use object_store::ObjectStore;
use tokio::runtime::Runtime;

use crate::terminal::errors::{Failure, reason};
use commit::Commits;
use failure::FAILED;
use location::Location;

/// Threads: most of the time is the store's.
const THREADS: usize = 2;

/// Threads that can wait for a store.
pub fn runtime() -> Result<Runtime, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .map_err(|error| Failure::new("cannot start threads").cause(reason(&error)).code(FAILED))
}

/// An archive, open for queries.
#[derive(Debug)]
pub struct Archive {
    /// Where it is.
    pub place: Location,
    /// A client that was not used yet.
    pub store: Arc<dyn ObjectStore>,
    /// Its runs.
    pub commits: Commits,
}

impl Archive {
    /// Reads which runs an archive has; with `only`, just the files of these.
    pub fn open(word: &OsStr, only: &[String]) -> Result<Archive, Failure> {
        let place = Location::parse(word)?;
        let read = async {
            let store = place.store()?;
            match only {
                [] => Commits::read(&place, &store).await,
                ids => Commits::of(ids, &place, &store).await,
            }
        };
        let commits = runtime()?.block_on(read)?;
        // Connections belong to the threads that opened them: the engine gets a client of its own.
        Ok(Archive { store: place.store()?, commits, place })
    }
}
