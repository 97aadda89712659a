//! Archives of runs: tables in a directory or an object store.
//!
//! An archive only grows, by whole runs, and nothing in it is ever changed or deleted. [`names`]
//! defines its layout, [`commit`] how a run becomes part of it.

pub mod client;
pub mod commit;
pub mod failure;
pub mod location;
pub mod names;

use std::ffi::OsStr;
use std::sync::Arc;

use object_store::ObjectStore;
use tokio::runtime::Runtime;

use commit::Commits;
use failure::FAILED;
use location::Location;
use tprof_ui::errors::{Failure, reason};

/// Number of threads. Few suffice, because they mostly wait for the store.
const THREADS: usize = 2;

/// Creates a runtime whose threads can wait for a store.
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
    /// Location of the archive.
    pub place: Location,
    /// A client of the store that has not been used yet, so that the query engine's runtime can use
    /// it.
    pub store: Arc<dyn ObjectStore>,
    /// Runs of the archive.
    pub commits: Commits,
}

impl Archive {
    /// Reads which runs an archive contains; with `only`, reads just the files of these runs.
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
        // The client that read the commit files is bound to this runtime, so the engine gets a new
        // one.
        Ok(Archive { store: place.store()?, commits, place })
    }
}
