//! Archives a run: writes its tables into a temporary directory, sends these files to the store,
//! and finally writes the commit file that makes the run part of the archive.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectStore, ObjectStoreExt, WriteMultipart};
use serde_json::Value;
use tprof_tables::{RANK_TABLES, RUN_TABLES, VERSION};
use tprof_trace::RunDir;
use tprof_ui::errors::{Failure, nearest, reason};
use tprof_ui::newest::FoundRun;

use super::identity::{Identity, of_file};
use crate::archive::commit::{ARCHIVE_VERSION, Commit, Object};
use crate::archive::failure::{self, FAILED};
use crate::archive::location::Location;
use crate::archive::names::{COMMITS, part};
use crate::status::MISUSE;
use crate::tables::dataset::ABOUT_FILE;

/// Ranks in one file of a table of ranks.
const RANKS_OF_FILE: usize = 128;
/// Number of objects to send at once.
const AT_ONCE: usize = 8;
/// Objects of at least this size in bytes are sent in parts of this size.
const PART: usize = 8 << 20;
/// Number of parts of an object to send at once.
const PARTS_AT_ONCE: usize = 4;

/// Result of archiving a run.
#[derive(Debug)]
pub enum Done {
    /// The run was archived now.
    Archived(Commit),
    /// The run was already in the archive.
    Before(Commit),
}

/// Returns the event tables that `--raw` requests.
pub fn raw_tables(words: &[String]) -> Result<Vec<&'static str>, Failure> {
    match words {
        [none] if none == "none" => return Ok(Vec::new()),
        [all] if all == "all" => return Ok(RANK_TABLES.to_vec()),
        _ => {}
    }
    let mut wanted = Vec::new();
    for word in words {
        let Some(table) = RANK_TABLES.into_iter().find(|table| table == word) else {
            let near = nearest(word, RANK_TABLES).map(str::to_owned);
            return Err(Failure::new(format!("bad value `{word}` for --raw"))
                .cause(format!("the tables of events are {}", RANK_TABLES.join(", ")))
                .hint(format!("--raw {}", near.unwrap_or_else(|| "all".to_owned())))
                .code(MISUSE));
        };
        if !wanted.contains(&table) {
            wanted.push(table);
        }
    }
    Ok(wanted)
}

/// State that all runs of a command line share.
pub struct Archiver {
    /// Location of the archive.
    pub place: Location,
    /// Client of the archive.
    pub store: Arc<dyn ObjectStore>,
    /// Event tables to archive.
    pub raw: Vec<&'static str>,
    /// Whether to archive runs in progress.
    pub unfinished: bool,
    /// Directory for files until they are in the archive.
    pub temporary: PathBuf,
}

impl Archiver {
    /// Archives a run.
    pub async fn archive(&self, path: &Path) -> Result<Done, Failure> {
        let run = self.open(path)?;
        let identity = Identity::of(&run).map_err(|error| {
            Failure::new(format!("cannot read `{}`", path.display()))
                .cause(reason(&error))
                .hint(format!("tprof ls {}", path.display()))
                .code(FAILED)
        })?;
        if let Some(there) = self.there(&identity).await? {
            return Ok(Done::Before(there));
        }
        let set = self.temporary.join(&identity.id);
        let made = self.export(&run.dir, &identity.id, &set)?;
        let objects = self.objects(&identity.id, &set)?;
        let sent = objects.clone().into_iter();
        let sent = sent.map(|(object, from)| async move { self.send(&from, &object).await });
        futures::stream::iter(sent).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
        let commit = Commit {
            archive_version: ARCHIVE_VERSION,
            tables_version: VERSION,
            tprof: env!("CARGO_PKG_VERSION").to_owned(),
            run: identity.id,
            archived_unix_ns: now_unix_ns(),
            start_unix_ns: (run.start_unix_ns > 0).then_some(run.start_unix_ns),
            hosts: hosts(&run.dir),
            files: run.dir.files().len(),
            ended: !run.is_live(),
            tables: made.rows,
            objects: objects.into_iter().map(|(object, _)| object).collect(),
            notes: made.notes,
        };
        let is_new = commit.write(&self.place, &self.store).await?;
        // The archive has all objects now, so the temporary files are not needed any more.
        let _ = fs::remove_dir_all(&set);
        match is_new {
            true => Ok(Done::Archived(commit)),
            // Another archiver committed the run first. Both sent the same bytes under the same
            // names.
            false => Ok(Done::Before(commit)),
        }
    }

    fn open(&self, path: &Path) -> Result<FoundRun, Failure> {
        let shown = path.display();
        let Some(run) = FoundRun::at(path) else {
            let why = match RunDir::open(path) {
                Ok(_) => "its files are not trace files".to_owned(),
                Err(error) => error.to_string(),
            };
            return Err(Failure::new(format!("`{shown}` is not a run"))
                .cause(why)
                .hint("tprof ls; tprof import FILE -o RUN makes a run of another tool's trace")
                .code(MISUSE));
        };
        if run.is_live() && !self.unfinished {
            return Err(Failure::new(format!("`{shown}` is still being recorded"))
                .cause("an archive never changes a run: what comes later would be missing")
                .hint("wait for its end, or --unfinished for what there is now")
                .code(FAILED));
        }
        Ok(run)
    }

    /// Returns the commit if the run is already in the archive. Fails if the commit lacks a
    /// requested table, because no table can be added to an archived run.
    async fn there(&self, identity: &Identity) -> Result<Option<Commit>, Failure> {
        let read = async |id: &str| Commit::read(id, &self.place, &self.store).await;
        let there = match read(&identity.id).await? {
            None => match self.under_other_name(&identity.hash).await? {
                Some(id) => read(&id).await?,
                None => None,
            },
            there => there,
        };
        let Some(commit) = there else { return Ok(None) };
        let lacking: Vec<&str> =
            self.raw.iter().filter(|table| !commit.tables.contains_key(**table)).copied().collect();
        if lacking.is_empty() {
            return Ok(Some(commit));
        }
        Err(Failure::new(format!(
            "{} is archived already, without {}",
            commit.run,
            lacking.join(", ")
        ))
        .cause("an archive never changes a run that it has")
        .hint("another archive: --to DIR|URL")
        .code(FAILED))
    }

    /// Returns the ID under which the archive has the same run, if it was archived from a directory
    /// of another name. A run must not count twice.
    async fn under_other_name(&self, hash: &str) -> Result<Option<String>, Failure> {
        let failed =
            |error: object_store::Error| failure::of(&error, self.place.describe_store(), "read");
        let mut names = self.store.list(Some(&self.place.path(COMMITS)));
        while let Some(object) = names.try_next().await.map_err(failed)? {
            let id = object.location.filename().and_then(|name| name.strip_suffix(".json"));
            let is_it = |id: &&str| id.rsplit_once('-').is_some_and(|(_, other)| other == hash);
            if let Some(id) = id.filter(is_it) {
                return Ok(Some(id.to_owned()));
            }
        }
        Ok(None)
    }

    fn export(&self, run: &RunDir, id: &str, set: &Path) -> Result<Made, Failure> {
        let mut tables: Vec<&str> = RUN_TABLES.map(|(name, _)| name).to_vec();
        tables.extend(&self.raw);
        let options = tprof_export::Options {
            output: Some(set.to_owned()),
            files_of_ranks: Some(RANKS_OF_FILE),
            tables: Some(&tables),
            run_name: Some(id),
            ..tprof_export::Options::default()
        };
        let failed = |why: String| {
            Failure::new(format!("cannot make the tables of `{}`", run.path().display()))
                .cause(why)
                .hint("TMPDIR=DIR with more space; tprof report summary")
                .code(FAILED)
        };
        let written =
            tprof_tables::parquet::export(run, &options).map_err(|error| failed(whole(&error)))?;
        let about = fs::read(set.join(ABOUT_FILE)).map_err(|error| failed(reason(&error)))?;
        let about: Value = serde_json::from_slice(&about).unwrap_or_default();
        let rows = |table: &&str| about["tables"][*table]["rows"].as_u64().unwrap_or_default();
        Ok(Made {
            rows: tables.iter().map(|table| ((*table).to_owned(), rows(table))).collect(),
            notes: written.all_notes().collect(),
        })
    }

    /// Returns the parts of all tables: their names in the archive, and the files that hold them
    /// now.
    fn objects(&self, id: &str, set: &Path) -> Result<Vec<(Object, PathBuf)>, Failure> {
        let failed = |error: std::io::Error| self.unread(set, &error);
        let mut objects = Vec::new();
        for table in fs::read_dir(set).map_err(failed)? {
            let table = table.map_err(failed)?;
            if !table.path().is_dir() {
                continue;
            }
            for file in fs::read_dir(table.path()).map_err(failed)? {
                let from = file.map_err(failed)?.path();
                let table = table.file_name().to_string_lossy().into_owned();
                let stem = from.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                // The file of a table about runs is named after the run, which the object's
                // directory already names.
                let stem = if stem == id { "all".to_owned() } else { stem };
                let hash = of_file(&from).map_err(failed)?;
                let bytes = fs::metadata(&from).map_err(failed)?.len();
                objects.push((Object { path: part(&table, id, &stem, &hash), table, bytes }, from));
            }
        }
        objects.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
        Ok(objects)
    }

    async fn send(&self, from: &Path, object: &Object) -> Result<(), Failure> {
        let to = self.place.path(&object.path);
        let failed = |error: object_store::Error| {
            failure::of(&error, self.place.describe_store(), "write to")
        };
        if object.bytes <= PART as u64 {
            let bytes = fs::read(from).map_err(|error| self.unread(from, &error))?;
            self.store.put(&to, bytes.into()).await.map_err(failed)?;
        } else {
            let upload = self.store.put_multipart(&to).await.map_err(failed)?;
            let mut parts = WriteMultipart::new_with_chunk_size(upload, PART);
            let mut file = File::open(from).map_err(|error| self.unread(from, &error))?;
            loop {
                let mut bytes = Vec::with_capacity(PART);
                let read = file.by_ref().take(PART as u64).read_to_end(&mut bytes);
                if read.map_err(|error| self.unread(from, &error))? == 0 {
                    break;
                }
                parts.wait_for_capacity(PARTS_AT_ONCE).await.map_err(failed)?;
                parts.put(Bytes::from(bytes));
            }
            parts.finish().await.map_err(failed)?;
        }
        self.keep(&object.path)
    }

    /// Flushes a file of a directory archive to the disk. It must be there before the commit file
    /// that names it.
    fn keep(&self, inside: &str) -> Result<(), Failure> {
        let Some(directory) = self.place.as_directory() else { return Ok(()) };
        let path = directory.join(inside);
        let of_directory = path.parent().unwrap_or(directory).to_owned();
        [path, of_directory].into_iter().try_for_each(|path| {
            File::open(&path).and_then(|file| file.sync_all()).map_err(|error| {
                Failure::new(format!("cannot write `{}`", path.display()))
                    .cause(reason(&error))
                    .code(FAILED)
            })
        })
    }

    fn unread(&self, path: &Path, error: &std::io::Error) -> Failure {
        Failure::new(format!("cannot read the temporary `{}`", path.display()))
            .cause(reason(error))
            .hint("TMPDIR=DIR names another place")
            .code(FAILED)
    }
}

/// Tables of a run in a temporary directory.
struct Made {
    rows: BTreeMap<String, u64>,
    notes: Vec<String>,
}

/// Joins an error's message and those of its causes.
fn whole(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn hosts(run: &RunDir) -> Vec<String> {
    let hosts = run.infos().iter().map(|info| info.host.clone()).filter(|host| !host.is_empty());
    let mut hosts: Vec<String> = hosts.collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

fn now_unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(words: &[&str]) -> Result<Vec<&'static str>, Failure> {
        raw_tables(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn event_tables_are_selected_by_name() {
        assert_eq!(raw(&["none"]).unwrap(), [""; 0]);
        assert_eq!(raw(&["all"]).unwrap().len(), RANK_TABLES.len());
        assert_eq!(raw(&["kernels", "spans", "kernels"]).unwrap(), ["kernels", "spans"]);
        let failure = raw(&["kernel"]).unwrap_err();
        assert_eq!((failure.hint.as_deref(), failure.code), (Some("--raw kernels"), MISUSE));
        assert!(raw(&["none", "spans"]).is_err() && raw(&["runs"]).is_err());
    }
}
