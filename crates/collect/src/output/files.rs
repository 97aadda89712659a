//! Creates the rank files of a run, names them, and decides when their rows are written.

use crate::error::CollectError;
use crate::output::keeping::{Keeping, StepStarts};
use crate::output::ranks::Rank;
use crate::output::sources::SourceFiles;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tprof_facts::history::{HistoryBuilder, LATE_PROPERTY};
use tprof_os::sys;
use tprof_symbols::ModuleFile;
use tprof_trace::model::{
    Counter, EventSample, HistoryRow, MarkKind, NameId, ProcessIndex, Property, Sample,
};
use tprof_trace::run::RankInfo;
use tprof_trace::{TraceError, TraceFile, TraceHeader, TraceWriter};

/// Number of samples that are enough for a block. Fewer samples wait for [`SAMPLES_WAIT_NS`].
const WORTH_A_BLOCK: usize = 512;
const SAMPLES_WAIT_NS: u64 = 3_000_000_000;
/// Longest time between two rows of a quantity that doesn't change, ns.
const STEADY_NS: u64 = 1_000_000_000;
/// Rows of steps' figures that are enough for a block. Fewer wait for [`HISTORY_WAITS_NS`], because a
/// block of a few rows is mostly a header, and these rows are to be few kilobytes an hour.
const HISTORY_BLOCK: usize = 128;
const HISTORY_WAITS_NS: u64 = 60_000_000_000;
/// Time between two blocks of new rows for those who look at the run while it lasts.
const HISTORY_SHOWN_NS: u64 = 3_000_000_000;
/// Longest time before its file that a process begins, ns.
const BEFORE_FILE_NS: u64 = 1_000_000_000;
/// If a file could not be created, time until the next attempt, ns.
const RETRY_NS: u64 = 1_000_000_000;

/// Which processes write to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOwner {
    /// Processes without a rank. If no process has a rank, they are rank 0, otherwise they are
    /// launchers.
    Unranked,
    /// Processes of one rank.
    Rank(Rank),
    /// Processes that only start ranks.
    Launcher,
}

/// How many of the figures of steps that wait are written now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteHistory {
    /// All that are complete, if they are enough for a block or have waited for long.
    Blocks,
    /// All that are complete, however few.
    All,
    /// All, also those that aren't complete, since nothing more comes.
    Last,
}

/// One open trace file.
pub struct OpenFile {
    /// Writer of the file.
    pub writer: TraceWriter,
    /// Which processes write to the file.
    pub owner: FileOwner,
    /// Number of processes that the file has so far.
    pub processes: u32,
    /// Number of threads that the file has so far.
    pub threads: u32,
    /// The file's current path.
    pub path: PathBuf,
    /// The file's inode, by which it is found if another collector has renamed it.
    inode: u64,
    /// Number of live images that write to it.
    pub live: u32,
    /// The last error of a write. It has been reported, and is reported again only if it changes.
    pub failed: Option<String>,
    /// Samples of time that wait to be written.
    pub samples: Vec<Sample>,
    /// Samples of events that wait to be written.
    pub event_samples: Vec<EventSample>,
    /// Time when rows were last written, ns.
    pub flushed_ns: u64,
    /// Time when samples were last written, ns.
    samples_ns: u64,
    /// The last reading of each quantity, by process, device and name.
    read: HashMap<(Option<ProcessIndex>, Option<u32>, NameId), LastReading>,
    /// The reason for missing proportional set sizes that the file contains, if they are missing.
    pub sizes_missing: Option<String>,
    /// UUIDs of the devices that the file's processes use.
    pub devices: HashSet<String>,
    /// The source files in stacks whose size and time were looked up.
    sources: SourceFiles,
    /// When the last steps began, if only some are kept.
    pub step_starts: StepStarts,
    /// Figures of steps that wait to be written.
    history: Vec<HistoryRow>,
    /// Time when figures of steps were last written, ns.
    history_ns: u64,
    /// How many of those that wait were shown, and when, ns.
    history_shown: (usize, u64),
}

/// The newest reading of a quantity.
struct LastReading {
    row: Counter,
    /// Time of the last row that was written, ns.
    written_ns: u64,
}

impl OpenFile {
    /// Returns a file without processes.
    pub fn new(writer: TraceWriter, owner: FileOwner, path: PathBuf) -> OpenFile {
        OpenFile {
            writer,
            owner,
            processes: 0,
            threads: 0,
            inode: inode_of(&path),
            path,
            live: 0,
            failed: None,
            samples: Vec::new(),
            event_samples: Vec::new(),
            flushed_ns: 0,
            samples_ns: 0,
            read: HashMap::new(),
            sizes_missing: None,
            devices: HashSet::new(),
            sources: SourceFiles::default(),
            step_starts: StepStarts::default(),
            history: Vec::new(),
            history_ns: sys::monotonic_ns(),
            history_shown: (0, 0),
        }
    }

    /// Returns the rank of the file's processes, if they have one.
    pub fn rank(&self) -> Option<u32> {
        match self.owner {
            FileOwner::Rank(rank) => Some(rank.number),
            FileOwner::Unranked | FileOwner::Launcher => None,
        }
    }

    /// Writes the waiting samples, unless they are too few for a block. Samples of one kind are
    /// written together, because the values that they have in common then take almost no space.
    pub fn write_samples(&mut self) -> Result<(), TraceError> {
        let waited_ns = sys::monotonic_ns().saturating_sub(self.samples_ns);
        match self.samples_waiting() < WORTH_A_BLOCK && waited_ns < SAMPLES_WAIT_NS {
            true => Ok(()),
            false => self.write_all_samples(),
        }
    }

    /// Writes the waiting samples, even if they are few.
    pub fn write_all_samples(&mut self) -> Result<(), TraceError> {
        if self.samples_waiting() == 0 {
            return Ok(());
        }
        self.samples_ns = sys::monotonic_ns();
        self.flushed_ns = self.samples_ns;
        self.samples.sort_by_key(|sample| (sample.state, sample.thread, sample.time_ns));
        self.event_samples.sort_by_key(|sample| (sample.event, sample.thread, sample.time_ns));
        self.writer.write(&mut self.samples)?;
        self.writer.write(&mut self.event_samples)
    }

    /// Writes the figures of steps that are complete by now, unless they are too few for a block and
    /// `when` lets them wait. Returns how many rows were lost with the error.
    pub fn write_history(&mut self, now: u64, when: WriteHistory) -> Result<(), (u64, TraceError)> {
        if self.owner == FileOwner::Launcher {
            return Ok(());
        }
        let is_last = when == WriteHistory::Last;
        let Some(watcher) = self.writer.watcher() else { return Ok(()) };
        let (rows, late_ns) = (watcher.figures(now, is_last), watcher.late_ns());
        self.history.extend(rows);
        if is_last && late_ns > 0 {
            self.write_property(LATE_PROPERTY, &late_ns.to_string());
        }
        let waited_ns = now.saturating_sub(self.history_ns);
        let is_due = self.history.len() >= HISTORY_BLOCK || waited_ns >= HISTORY_WAITS_NS;
        if self.history.is_empty()
            || when == WriteHistory::Blocks && !is_due && self.show_history(now)?
        {
            return Ok(());
        }
        (self.history_ns, self.flushed_ns) = (now, now);
        self.history_shown = (0, now);
        let count = self.history.len() as u64;
        self.writer.write(&mut self.history).map_err(|error| (count, error))
    }

    /// Shows the figures of steps that are new. Returns `false` if they must be written for that:
    /// without segments, the file grows by more than a few short blocks anyway.
    fn show_history(&mut self, now: u64) -> Result<bool, (u64, TraceError)> {
        let (shown, shown_ns) = self.history_shown;
        if self.history.len() == shown || now.saturating_sub(shown_ns) < HISTORY_SHOWN_NS {
            return Ok(true);
        }
        self.history_shown = (self.history.len(), now);
        // Rows that can't be shown are not lost.
        Ok(self.writer.show(&self.history[shown..]).unwrap_or(true))
    }

    /// Returns the number of samples that wait.
    pub fn samples_waiting(&self) -> usize {
        self.samples.len() + self.event_samples.len()
    }

    /// Writes a property of the whole file: its key, and its value as JSON.
    pub fn write_property(&mut self, key: &str, value: &str) {
        let (key, value) = (self.writer.name(key), self.writer.name(value));
        self.writer.property(Property { key, value });
    }

    /// Writes size and time of a Python source file, if the file is named for the first time.
    pub fn python_source(&mut self, path: &str, pid: u32) {
        if let Some((key, value)) = self.sources.of_python(path, pid) {
            self.write_property(&key, &value);
        }
    }

    /// Writes size and time of a source file that a module was compiled from, if it is named for
    /// the first time.
    pub fn module_source(&mut self, path: &str, module: &ModuleFile) {
        if let Some((key, value)) = self.sources.of_module(path, module) {
            self.write_property(&key, &value);
        }
    }

    /// Writes a reading. If the reading equals the last row, it waits until that row is a second
    /// old or until a different reading follows. So curves look the same as if all readings were
    /// written.
    pub fn counter(&mut self, row: Counter) {
        let written_ns = row.time_ns;
        match self.read.get_mut(&(row.process, row.device, row.name)) {
            Some(read) if read.row.value == row.value => {
                read.row.time_ns = row.time_ns;
                if row.time_ns.saturating_sub(read.written_ns) < STEADY_NS {
                    return;
                }
                read.written_ns = written_ns;
            }
            Some(read) => {
                if read.row.time_ns > read.written_ns {
                    self.writer.counter(read.row);
                }
                *read = LastReading { row, written_ns };
            }
            None => {
                self.read
                    .insert((row.process, row.device, row.name), LastReading { row, written_ns });
            }
        }
        self.writer.counter(row);
    }

    /// Writes the last readings of a process that has ended, as far as they are waiting, and
    /// removes them.
    pub fn forget(&mut self, process: ProcessIndex) {
        let (writer, read) = (&mut self.writer, &mut self.read);
        read.retain(|(of, ..), read| {
            let gone = *of == Some(process);
            if gone && read.row.time_ns > read.written_ns {
                writer.counter(read.row);
            }
            !gone
        });
    }
}

/// All rank files of this collector.
pub struct Files {
    directory: PathBuf,
    header: TraceHeader,
    /// Properties of the whole run that each file contains: key, and value as JSON.
    facts: Vec<(String, String)>,
    /// All files. No file is ever removed, so indexes stay valid.
    pub open: Vec<OpenFile>,
    /// Whether any process has named its rank.
    pub ranked: bool,
    /// Since when recording is off, ns, and the option or command that switched it off; `None`
    /// while it is on.
    pub off_since: Option<(u64, String)>,
    /// Time when the file for processes without a rank could last not be created, ns, and the
    /// reason.
    refused: Option<(u64, String)>,
    /// How only the last part is kept, if not everything is.
    pub keeping: Option<Keeping>,
}

impl Files {
    /// Returns the state of a run without files.
    pub fn new(
        directory: &Path,
        header: TraceHeader,
        facts: Vec<(&'static str, String)>,
        keeping: Option<Keeping>,
    ) -> Files {
        Files {
            directory: directory.to_owned(),
            header,
            facts: facts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            open: Vec::new(),
            ranked: false,
            off_since: None,
            refused: None,
            keeping,
        }
    }

    /// Adds a property of the whole run, which each file contains, also a later one.
    pub fn add_fact(&mut self, key: &str, value: &str) {
        self.open.iter_mut().for_each(|open| open.write_property(key, value));
        self.facts.push((key.to_owned(), value.to_owned()));
    }

    fn create_writer(&self, path: &Path, header: &TraceHeader) -> Result<TraceWriter, TraceError> {
        match &self.keeping {
            Some(keeping) => keeping.create(path, header, self.open.len()),
            None => TraceWriter::create(path, header),
        }
    }

    /// Creates a file under the first free one of these names.
    fn create(
        &mut self,
        owner: FileOwner,
        names: &mut dyn Iterator<Item = String>,
    ) -> Result<usize, CollectError> {
        let mut last = None;
        for name in names.take(10_000) {
            let path = self.directory.join(name);
            let header = TraceHeader {
                rank: if let FileOwner::Rank(rank) = owner { Some(rank.number) } else { None },
                provisional: owner == FileOwner::Unranked,
                instance: if let FileOwner::Rank(rank) = owner { rank.restarts } else { 0 },
                ..self.header.clone()
            };
            match self.create_writer(&path, &header) {
                Ok(writer) => {
                    return Ok(self.register(writer, owner, path));
                }
                Err(e) if exists(&path) => {
                    self.rename_launcher_file(&path, &owner);
                    // The other file may have been renamed, so that this name is free now.
                    if !exists(&path)
                        && let Ok(writer) = self.create_writer(&path, &header)
                    {
                        return Ok(self.register(writer, owner, path));
                    }
                    last = Some(e);
                }
                Err(e) => return Err(e.into()),
            }
        }
        Err(last.map_or_else(
            || CollectError::NotADirectory(self.directory.clone()),
            |e: TraceError| e.into(),
        ))
    }

    /// Adds an open file, and returns its index.
    fn register(&mut self, writer: TraceWriter, owner: FileOwner, path: PathBuf) -> usize {
        let mut open = OpenFile::new(writer, owner, path);
        // The first process may have begun a moment before its file.
        let begun_ns = sys::monotonic_ns().saturating_sub(BEFORE_FILE_NS);
        open.writer.watch(Box::new(HistoryBuilder::new(begun_ns.max(self.header.start_ns))));
        for (key, value) in &self.facts {
            open.write_property(key, value);
        }
        // Without this mark, a file without rows would look as if nothing had happened.
        if let Some((time_ns, by)) = &self.off_since {
            open.writer.mark_named((None, *time_ns), MarkKind::RecordingOff, by);
        }
        self.open.push(open);
        self.open.len() - 1
    }

    /// Renames another collector's file that occupies rank 0's name. A collector on another host
    /// may have created it before any process there named a rank. That collector belongs to a
    /// launcher.
    fn rename_launcher_file(&self, path: &Path, owner: &FileOwner) {
        if !matches!(owner, FileOwner::Rank(Rank { number: 0, .. })) {
            return;
        }
        let Ok(file) = TraceFile::open(path) else { return };
        if file.header().provisional && file.header().host != self.header.host {
            let host = file.header().host.clone();
            for name in numbered(&format!("launcher-{host}")).take(1000) {
                if sys::rename_new(path, &self.directory.join(name)).is_ok() {
                    return;
                }
            }
        }
    }

    /// Returns the file for processes without a rank, and creates it when it is first needed. If
    /// that fails, later calls fail at once for a second, because thousands of samples may need the
    /// file.
    pub fn unranked(&mut self) -> Result<usize, CollectError> {
        let wanted = if self.ranked { FileOwner::Launcher } else { FileOwner::Unranked };
        if let Some(at) = self.open.iter().position(|f| f.owner == wanted) {
            return Ok(at);
        }
        let now_ns = sys::monotonic_ns();
        if let Some((at_ns, why)) = &self.refused
            && now_ns.saturating_sub(*at_ns) < RETRY_NS
        {
            let source = std::io::Error::other(why.clone());
            return Err(CollectError::Unwritable { path: self.directory.clone(), source });
        }
        let made = self.create_unranked();
        self.refused = made.as_ref().err().map(|error| (now_ns, error.to_string()));
        made
    }

    fn create_unranked(&mut self) -> Result<usize, CollectError> {
        let host = self.header.host.clone();
        if self.ranked {
            self.create(FileOwner::Launcher, &mut numbered(&format!("launcher-{host}")))
        } else {
            let first = std::iter::once("rank-0.tprof".to_owned());
            let pid = std::process::id();
            self.create(
                FileOwner::Unranked,
                &mut first.chain(numbered(&format!("process-{host}-{pid}"))),
            )
        }
    }

    /// Creates a file for `rank`: `rank-3.tprof`, or `rank-3.1.tprof` if that name is taken.
    pub fn rank(&mut self, rank: Rank) -> Result<usize, CollectError> {
        if !self.ranked {
            self.ranked = true;
            if let Some(at) = self.open.iter().position(|f| f.owner == FileOwner::Unranked) {
                self.becomes_launcher(at);
            }
        }
        self.create(FileOwner::Rank(rank), &mut numbered(&format!("rank-{}", rank.number)))
    }

    /// Renames a file, because its processes turned out to be launchers.
    pub fn becomes_launcher(&mut self, at: usize) {
        let host = self.header.host.clone();
        let Some(file) = self.open.get_mut(at) else { return };
        file.owner = FileOwner::Launcher;
        for name in numbered(&format!("launcher-{host}")).take(1000) {
            let to = self.directory.join(name);
            match sys::rename_new(&file.path, &to) {
                Ok(()) => {
                    file.writer.moved_to(&to);
                    file.path = to;
                    return;
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => {
                    // A collector on another host may have renamed the file already.
                    if e.kind() == std::io::ErrorKind::NotFound
                        && let Some(to) = found(&self.directory, file.inode)
                    {
                        file.writer.moved_to(&to);
                        file.path = to;
                    }
                    return;
                }
            }
        }
    }

    /// Returns the newest file of `rank`.
    pub fn newest_of(&self, rank: &Rank) -> Option<usize> {
        self.open.iter().rposition(|f| matches!(&f.owner, FileOwner::Rank(of) if of.is_same(rank)))
    }

    /// Returns the ranks that have files.
    pub fn ranks(&self) -> Vec<RankInfo> {
        let info = |open: &OpenFile| match (&open.owner, open.path.file_name()) {
            (FileOwner::Rank(rank), Some(name)) => Some(RankInfo {
                rank: rank.number,
                size: rank.size,
                launch: rank.launch.map(|hash| format!("{hash:016x}")),
                restarts: rank.restarts,
                file: name.to_string_lossy().into_owned(),
            }),
            _ => None,
        };
        self.open.iter().filter_map(info).collect()
    }

    /// Returns the number of bytes in all files.
    pub fn bytes(&self) -> u64 {
        self.open.iter().map(|f| f.writer.bytes_written()).sum()
    }
}

/// Finds the trace file with this inode in a directory, and returns its path.
fn found(directory: &Path, inode: u64) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path());
    let mut traces = entries.filter(|path| path.extension().is_some_and(|end| end == "tprof"));
    traces.find(|path| inode_of(path) == inode)
}

/// Returns a file's inode; 0 if there is no file.
fn inode_of(path: &Path) -> u64 {
    path.symlink_metadata().map_or(0, |meta| meta.ino())
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Returns the names `stem.tprof`, `stem.1.tprof`, and so on.
fn numbered(stem: &str) -> impl Iterator<Item = String> + use<> {
    let stem = stem.to_owned();
    (0u32..).map(move |n| match n {
        0 => format!("{stem}.tprof"),
        n => format!("{stem}.{n}.tprof"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_reading_is_written_once_per_second() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rank-0.tprof");
        let writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let mut open = OpenFile::new(writer, FileOwner::Unranked, path.clone());
        let name = open.writer.name("rss");
        let mut read = |tenth: u64, value: f64| {
            let time_ns = tenth * 100_000_000;
            open.counter(Counter { time_ns, process: Some(0), device: None, name, value });
        };
        (0..14).for_each(|tenth| read(tenth, 5.0));
        (14..16).for_each(|tenth| read(tenth, 6.0));
        open.forget(0);
        open.writer.finish().unwrap();
        let file = TraceFile::open(&path).unwrap();
        let rows: Vec<_> =
            file.counters().iter().map(|row| (row.time_ns / 100_000_000, row.value)).collect();
        // The last reading before a change and the last one of all have a row too.
        assert_eq!(rows, [(0, 5.0), (10, 5.0), (13, 5.0), (14, 6.0), (15, 6.0)]);
    }
}
