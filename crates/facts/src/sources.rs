//! Reads lines of source files as they were while a run was recorded.
//!
//! The recording has the size and the modification time of each file that its stacks name. A file's
//! lines are shown only if both were recorded and are still the same. Otherwise the lines may be
//! different from those that ran.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tprof_trace::model::{SourceStamp, property};
use tprof_trace::{TraceFile, read_plain};

/// Files larger than this are not read.
const MOST_BYTES: u64 = 8 << 20;

/// The reason why a file's lines are not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoSource {
    /// The size or the modification time of the file has changed since the recording, or differs
    /// between ranks.
    Changed,
    /// The file cannot be read here.
    Absent,
    /// The recording has no size and time of the file.
    Unrecorded,
    /// The file was changed after its program was built or started, or while it was recorded.
    Newer,
    /// The file isn't text, or is too large.
    NoText,
    /// The file has no such line.
    NoLine,
    /// The code came from text that isn't in a file (`python -c`, `exec`).
    NoFile,
}

impl fmt::Display for NoSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoSource::Changed => "the file changed since it was recorded",
            NoSource::Absent => "the file cannot be read here",
            NoSource::Unrecorded => "the recording has no size and time of the file",
            NoSource::Newer => "the file is newer than the code that ran",
            NoSource::NoText => "the file is no text, or larger than 8 MiB",
            NoSource::NoLine => "the file has no such line",
            NoSource::NoFile => "the code is in no file",
        })
    }
}

/// The source files of a run. Each file is read at most once.
#[derive(Debug, Default)]
pub struct Sources {
    stamps: HashMap<String, SourceStamp>,
    /// Files for which ranks recorded different sizes or times.
    disputed: Vec<String>,
    read: HashMap<String, Result<Vec<String>, NoSource>>,
}

impl Sources {
    /// Collects the source files that a rank file names.
    pub fn of(file: &TraceFile) -> Sources {
        let mut sources = Sources::default();
        for (key, value) in file.properties() {
            let Some(path) = key.strip_prefix(property::SOURCE) else { continue };
            if let Some(stamp) = SourceStamp::from_json(value) {
                sources.insert(path.to_owned(), stamp);
            }
        }
        sources
    }

    /// Adds the source files of another rank file.
    pub fn add(&mut self, other: Sources) {
        self.disputed.extend(other.disputed);
        for (path, stamp) in other.stamps {
            self.insert(path, stamp);
        }
    }

    fn insert(&mut self, path: String, stamp: SourceStamp) {
        match self.stamps.get(&path) {
            Some(known) if *known != stamp => self.disputed.push(path),
            Some(_) => {}
            None => {
                self.stamps.insert(path, stamp);
            }
        }
    }

    /// Returns a line, numbered from 1, without surrounding space.
    pub fn line(&mut self, path: &str, line: u32) -> Result<&str, NoSource> {
        if !self.read.contains_key(path) {
            let lines = self.lines(path);
            self.read.insert(path.to_owned(), lines);
        }
        let lines = self.read[path].as_ref().map_err(|why| *why)?;
        let at = (line as usize).checked_sub(1).ok_or(NoSource::NoLine)?;
        lines.get(at).map(|text| text.trim()).ok_or(NoSource::NoLine)
    }

    fn lines(&self, path: &str) -> Result<Vec<String>, NoSource> {
        if path.starts_with('<') {
            return Err(NoSource::NoFile);
        }
        let stamp = self.stamps.get(path).ok_or(NoSource::Unrecorded)?;
        if stamp.is_newer {
            return Err(NoSource::Newer);
        }
        let now = fs::metadata(path).map_err(|_| NoSource::Absent)?;
        let is_disputed = self.disputed.iter().any(|other| other == path);
        if is_disputed || !matches(stamp, &now) {
            return Err(NoSource::Changed);
        }
        if now.len() > MOST_BYTES {
            return Err(NoSource::NoText);
        }
        let text = read_plain(Path::new(path)).map_err(|_| NoSource::Absent)?;
        let text = String::from_utf8(text).map_err(|_| NoSource::NoText)?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

fn matches(stamp: &SourceStamp, now: &Metadata) -> bool {
    let changed_ns = now.mtime().saturating_mul(1_000_000_000).saturating_add(now.mtime_nsec());
    now.is_file() && stamp.bytes == now.len() && stamp.changed_unix_ns == changed_ns
}
