//! Reads and writes commit files. A run is part of an archive if the archive has a commit file for
//! it. The file is small, and is written last, when everything else of the run is in the archive.
//!
//! A store writes the file completely or not at all, and only if no file of that name exists.
//! Readers look only for commit files, so they don't see a run that was archived only partly.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use serde::{Deserialize, Serialize};
use tprof_ui::errors::Failure;

use super::failure;
use super::location::Location;
use super::names::{self, COMMITS, commit};

/// Version of the commit file.
pub const ARCHIVE_VERSION: u32 = 1;
/// Number of files to read at once.
const AT_ONCE: usize = 16;

/// A run of an archive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Commit {
    /// Version of the file: [`ARCHIVE_VERSION`].
    pub archive_version: u32,
    /// Version of the tables: `tprof_tables::VERSION`.
    pub tables_version: u32,
    /// Version of the tprof that archived the run.
    pub tprof: String,
    /// ID of the run in the archive, which is the column `run` of every table.
    pub run: String,
    /// When the run was archived, in nanoseconds since 1970.
    pub archived_unix_ns: u64,
    /// When the run began, in nanoseconds since 1970; `None` if unknown.
    pub start_unix_ns: Option<u64>,
    /// Hosts on which the run took place.
    pub hosts: Vec<String>,
    /// Number of the run's trace files.
    pub files: usize,
    /// Whether the run had ended.
    pub ended: bool,
    /// Archived tables and their numbers of rows. If a table is missing here, the run may have rows
    /// of it that were not archived. If it is here with 0 rows, the run has none.
    pub tables: BTreeMap<String, u64>,
    /// Objects with parts of tables.
    pub objects: Vec<Object>,
    /// Parts of the run that could not be read, in sentences.
    pub notes: Vec<String>,
}

/// An object with a part of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Name of the table.
    pub table: String,
    /// Path in the archive.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
}

impl Commit {
    /// Total size of its objects in bytes.
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.bytes).sum()
    }

    /// Writes the commit file, which makes the run part of the archive. Returns false if the run
    /// already was.
    pub async fn write(
        &self,
        place: &Location,
        store: &Arc<dyn ObjectStore>,
    ) -> Result<bool, Failure> {
        let text = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        let path = place.path(&commit(&self.run));
        match store.put_opts(&path, PutPayload::from(text), PutMode::Create.into()).await {
            Ok(_) => Ok(true),
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => Ok(false),
            Err(error) => Err(failure::of(&error, place.describe_store(), "write to")),
        }
    }

    /// Reads the commit file with this ID, if there is one.
    pub async fn read(
        id: &str,
        place: &Location,
        store: &Arc<dyn ObjectStore>,
    ) -> Result<Option<Commit>, Failure> {
        let failed =
            |error: object_store::Error| failure::of(&error, place.describe_store(), "read");
        let got = match store.get(&place.path(&commit(id))).await {
            Ok(got) => got,
            // A missing bucket is an error, and must not look like a missing commit file.
            Err(error) if failure::is_missing_object(&error) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let bytes = got.bytes().await.map_err(failed)?;
        parse(&bytes).map(Some).map_err(|why| {
            Failure::new(format!("cannot read `{}` in {}", commit(id), place.shown()))
                .cause(why)
                .hint(format!("tprof archive --check {}", place.shown()))
                .code(failure::FAILED)
        })
    }
}

/// Runs of an archive, sorted by ID, and messages about commit files that could not be read.
#[derive(Clone, Debug, Default)]
pub struct Commits {
    /// The archived runs.
    pub runs: Vec<Commit>,
    /// A sentence about each commit file that could not be read.
    pub problems: Vec<String>,
}

impl Commits {
    /// Reads the runs with these IDs; fails if one does not exist.
    pub async fn of(
        ids: &[String],
        place: &Location,
        store: &Arc<dyn ObjectStore>,
    ) -> Result<Commits, Failure> {
        let read = ids.iter().map(|id| async move {
            let there = if names::is_id(id) { Commit::read(id, place, store).await? } else { None };
            there.ok_or_else(|| {
                Failure::new(format!("there is no run `{id}` in {}", place.shown()))
                    .cause("no file in `_runs` has this name")
                    .hint(format!("tprof archive --list {}", place.shown()))
                    .code(failure::FAILED)
            })
        });
        let read = futures::stream::iter(read).buffer_unordered(AT_ONCE);
        let mut runs: Vec<Commit> = read.try_collect().await?;
        runs.sort_by(|a, b| a.run.cmp(&b.run));
        runs.dedup_by(|a, b| a.run == b.run);
        Ok(Commits { runs, problems: Vec::new() })
    }

    /// Reads all runs.
    pub async fn read(place: &Location, store: &Arc<dyn ObjectStore>) -> Result<Commits, Failure> {
        let failed =
            |error: object_store::Error| failure::of(&error, place.describe_store(), "read");
        let files = files(place, store).await?;
        let read = futures::stream::iter(files.into_iter().map(|path| async move {
            let bytes = store.get(&path).await?.bytes().await?;
            Ok::<_, object_store::Error>((path, bytes))
        }));
        let mut read = read.buffer_unordered(AT_ONCE);
        let mut all = Commits::default();
        while let Some(one) = read.next().await {
            let (path, bytes) = one.map_err(failed)?;
            match parse(&bytes) {
                Ok(commit) => all.runs.push(commit),
                Err(why) => all.problems.push(format!("{path}: {why}")),
            }
        }
        all.runs.sort_by(|a, b| a.run.cmp(&b.run));
        all.problems.sort();
        Ok(all)
    }
}

/// Returns the IDs of all runs from the names of their files, without reading any.
pub async fn ids(place: &Location, store: &Arc<dyn ObjectStore>) -> Result<Vec<String>, Failure> {
    let files = files(place, store).await?;
    let names = files.iter().filter_map(|path| path.filename()?.strip_suffix(".json"));
    let mut ids: Vec<String> = names.map(str::to_owned).collect();
    ids.sort();
    Ok(ids)
}

/// Lists the commit files of an archive.
async fn files(place: &Location, store: &Arc<dyn ObjectStore>) -> Result<Vec<Path>, Failure> {
    let listed: object_store::Result<Vec<_>> =
        store.list(Some(&place.path(COMMITS))).try_collect().await;
    let listed = listed.map_err(|error| failure::of(&error, place.describe_store(), "read"))?;
    let paths = listed.into_iter().map(|of| of.location);
    Ok(paths.filter(|path| path.as_ref().ends_with(".json")).collect())
}

fn parse(bytes: &[u8]) -> Result<Commit, String> {
    #[derive(Deserialize)]
    struct Version {
        archive_version: u32,
    }
    let Version { archive_version } =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if archive_version > ARCHIVE_VERSION {
        return Err(format!(
            "written as version {archive_version}; this tprof reads up to {ARCHIVE_VERSION}"
        ));
    }
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}
