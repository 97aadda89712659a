//! `tprof archive --list --json`: the facts that programs need before they query an archive.
//!
//! It has the content of the files in `_runs` without the paths of objects: the runs, the archived
//! tables of each, and the parts that could not be read.

use serde_json::{Value, json};

use crate::archive::commit::{Commit, Commits};
use crate::archive::location::Location;

/// Version of the document.
const VERSION: u32 = 1;

/// Returns the document for all runs of an archive.
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
