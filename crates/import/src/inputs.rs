//! Finds the files to import: files that the user named, and files in directories that the user
//! named.
//!
//! In a directory, files with the usual names are imported. If no file has such a name, all files
//! are candidates, and their content decides. Files in subdirectories are not imported, and a note
//! says so. A file that cannot be read is noted too, because it may be a rank that the run then
//! lacks.

use crate::compile_logs::{LOGS, is_log};
use crate::content;
use crate::error::ImportError;
use crate::names::{SNAPSHOTS, TRACES, file_name, has_name};
use crate::rank;
use crate::subdirectories;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tprof_trace::compile_log::LOG_PREFIX;

/// A file to import.
pub(crate) struct Input {
    pub path: PathBuf,
    /// Whether the file was found in a directory. Such a file is skipped if it is not a trace.
    pub found: bool,
}

/// All inputs of an import.
#[derive(Default)]
pub(crate) struct Inputs {
    /// Traces and snapshots.
    pub files: Vec<Input>,
    /// Logs of `torch.compile`.
    pub logs: Vec<PathBuf>,
    /// Sentences about files in the directories that are not imported.
    pub notes: Vec<String>,
}

impl Inputs {
    pub fn of(paths: &[PathBuf]) -> Result<Inputs, ImportError> {
        let (mut inputs, mut logs) = (Inputs::default(), BTreeSet::new());
        for path in paths {
            let failed = |what| move |source| ImportError::Io { path: path.clone(), what, source };
            if fs::metadata(path).map_err(failed("open"))?.is_dir() {
                let listing = Listing::of(path).map_err(failed("read"))?;
                logs.extend(inputs.add(path, paths, listing)?);
            } else if is_log(path) {
                logs.insert(path.clone());
            } else {
                inputs.files.push(Input { path: path.clone(), found: false });
            }
        }
        inputs.logs = logs.into_iter().collect();
        Ok(inputs)
    }

    /// Adds the files of a directory, including logs.
    fn add(
        &mut self,
        directory: &Path,
        paths: &[PathBuf],
        mut listing: Listing,
    ) -> Result<Vec<PathBuf>, ImportError> {
        let unread: Vec<String> = listing.unread.iter().map(Unread::text).collect();
        if listing.is_empty() {
            let within = subdirectories::directories(directory, paths);
            return Err(ImportError::NoTraces { path: directory.to_owned(), within, unread });
        }
        listing.snapshots.sort();
        if listing.traces.is_empty() {
            listing.traces.append(&mut listing.snapshots);
        } else if let Some(first) = listing.snapshots.first() {
            let (count, first) = (listing.snapshots.len(), first.display());
            let files = if count == 1 { "snapshot" } else { "snapshots" };
            self.notes.push(format!(
                "{count} memory {files} beside the traces skipped; to read one: tprof report \
                 device-memory {first}"
            ));
        }
        self.notes.extend(subdirectories::skipped(directory, paths));
        self.notes.extend(unread.into_iter().map(|text| format!("skipped: {text}")));
        let mut found = listing.traces;
        found.sort_by_key(|file| (rank::of_name(&file.to_string_lossy()), file.clone()));
        self.files.extend(found.into_iter().map(|path| Input { path, found: true }));
        Ok(listing.logs)
    }
}

/// Whether a directory that isn't a run contains something to import, or a file with such a name.
pub(crate) fn is_foreign_directory(directory: &Path) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return false };
    !entries.flatten().any(|entry| is_of_run(&entry.path()))
        && Listing::of(directory)
            .is_ok_and(|found| !found.is_empty() || found.unread.iter().any(Unread::is_named))
}

/// Whether a file makes its directory a run.
pub(crate) fn is_of_run(path: &Path) -> bool {
    has_name(path, &[".tprof"]) || file_name(path) == "run.json"
}

/// The reason for not reading an empty file.
const EMPTY: &str = "it is empty";

/// A file of a directory that cannot be read.
struct Unread {
    path: PathBuf,
    name: Option<FileKind>,
    why: String,
}

impl Unread {
    fn is_named(&self) -> bool {
        self.name.is_some()
    }

    fn text(&self) -> String {
        format!("`{}`: {}", self.path.display(), self.why)
    }
}

/// Kind of a file, by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Trace,
    Snapshot,
    /// A log that PyTorch named.
    CompileLog,
    /// Any log, which usually has nothing to do with `torch.compile`.
    Log,
}

impl FileKind {
    fn of(path: &Path) -> Option<FileKind> {
        if has_name(path, TRACES) {
            Some(FileKind::Trace)
        } else if has_name(path, SNAPSHOTS) {
            Some(FileKind::Snapshot)
        } else if has_name(path, LOGS) {
            let is_of_torch = file_name(path).starts_with(LOG_PREFIX);
            Some(if is_of_torch { FileKind::CompileLog } else { FileKind::Log })
        } else {
            None
        }
    }
}

/// Content of a directory.
#[derive(Default)]
struct Listing {
    traces: Vec<PathBuf>,
    snapshots: Vec<PathBuf>,
    logs: Vec<PathBuf>,
    unread: Vec<Unread>,
}

impl Listing {
    fn of(directory: &Path) -> io::Result<Listing> {
        let (mut listing, mut others) = (Listing::default(), Vec::new());
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                continue;
            }
            let name = FileKind::of(&path);
            if let Some(why) = trouble(&path, name) {
                listing.unread.push(Unread { path, name, why });
                continue;
            }
            match name {
                Some(FileKind::Trace) => listing.traces.push(path),
                Some(FileKind::Snapshot) => listing.snapshots.push(path),
                Some(FileKind::CompileLog | FileKind::Log) if is_log(&path) => {
                    listing.logs.push(path)
                }
                _ => others.push(path),
            }
        }
        if listing.is_empty() {
            listing.add_by_content(others);
        }
        // An empty log alone means nothing. Next to other logs, it means that the log of a rank is
        // missing.
        if listing.logs.is_empty() {
            listing
                .unread
                .retain(|unread| unread.name != Some(FileKind::Log) || unread.why != EMPTY);
        }
        listing.unread.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(listing)
    }

    fn is_empty(&self) -> bool {
        self.traces.is_empty() && self.snapshots.is_empty() && self.logs.is_empty()
    }

    fn add_by_content(&mut self, paths: Vec<PathBuf>) {
        for path in paths {
            if content::is_trace_or_snapshot(&path) {
                self.traces.push(path);
            } else if is_log(&path) {
                self.logs.push(path);
            }
        }
    }
}

/// Returns the reason if a file cannot be read. An empty file counts only if its name says that it
/// is a trace, a snapshot or a log.
fn trouble(path: &Path, name: Option<FileKind>) -> Option<String> {
    match tprof_trace::open_plain(path).and_then(|file| file.metadata()) {
        Ok(about) => (about.len() == 0 && name.is_some()).then(|| EMPTY.to_owned()),
        Err(error) => Some(reason(&error)),
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it is a link that leads nowhere".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
