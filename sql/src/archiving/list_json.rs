//! `tprof archive --list --json`: what programs ask before they query an archive.
//!
//! It is what the files in `_runs` have, without the paths of objects: which runs there are, which
//! tables each was archived with, and what of it could not be read.

use serde_json::{Value, json};

use crate::archive::commit::{Commit, Commits};
use crate::archive::location::Location;

/// Version of the document.
const VERSION: u32 = 1;

/// All runs of an archive.
pub fn document(place: &Location, commits: &Commits) -> Value {
    json!({
        "version": VERSION,
        "tprof": env!("CARGO_PKG_VERSION"),
        "archive": place.shown(),
        "tables_version": tprof_tables::VERSION,
        "runs": commits.runs.iter().map(run).collect::<Vec<_>>(),
        "problems": commits.problems,
    })
}

fn run(commit: &Commit) -> Value {
    json!({
        "run": commit.run,
        "archived_unix_ns": commit.archived_unix_ns,
        "start_unix_ns": commit.start_unix_ns,
        "hosts": commit.hosts,
        "files": commit.files,
        "ended": commit.ended,
        "tables_version": commit.tables_version,
        "tables": commit.tables,
        "objects": commit.objects.len(),
        "bytes": commit.bytes(),
        "tprof": commit.tprof,
        "notes": commit.notes,
    })
}
