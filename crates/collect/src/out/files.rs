//! The rank files of a run: which there are, their names, and when they are written.

use crate::error::CollectError;
use crate::os::sys;
use crate::out::ranks::Rank;
use crate::out::sources::SourceFiles;
use crate::symbols::ModuleFile;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tprof_trace::model::{Counter, EventSample, NameId, ProcessIndex, Property, Sample};
use tprof_trace::run::RankInfo;
use tprof_trace::{TraceError, TraceFile, TraceHeader, TraceWriter};

/// Samples that are worth a block; fewer wait this long.
const WORTH_A_BLOCK: usize = 512;
const SAMPLES_WAIT_NS: u64 = 3_000_000_000;
/// A quantity that stays as it is has a row this often.
const STEADY_NS: u64 = 1_000_000_000;
/// Time before a file that could not be created is tried again.
const RETRY_NS: u64 = 1_000_000_000;

/// The processes whose rows a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOwner {
    /// Processes that named no rank: rank 0 until a rank shows up, then a launcher.
    Unranked,
    /// Processes of one rank.
    Rank(Rank),
    /// Processes that only launched ranks.
    Launcher,
}

/// One open trace file.
pub struct OpenFile {
    /// Writer of the file.
    pub writer: TraceWriter,
    /// The processes whose rows it holds.
    pub owner: FileOwner,
    /// Processes in it so far.
    pub processes: u32,
    /// Threads in it so far.
    pub threads: u32,
    /// Present path of the file.
    pub path: PathBuf,
    /// Inode by which the file is found again where it was moved.
    inode: u64,
    /// Live process images that write here.
    pub live: u32,
    /// The last error was reported already.
    pub failed: Option<String>,
    /// Samples that wait for a block to be worth its head.
    pub samples: Vec<Sample>,
    /// Samples of events that wait, like `samples`.
    pub event_samples: Vec<EventSample>,
    /// Time when its rows were last written.
    pub flushed_ns: u64,
    /// Time when its samples were last written.
    samples_ns: u64,
    /// The last reading of each quantity.
    read: HashMap<(Option<ProcessIndex>, Option<u32>, NameId), LastReading>,
    /// Why proportional set sizes are missing, as the file has it.
    pub sizes_missing: Option<String>,
    /// UUIDs of the devices that processes in it see.
    pub devices: HashSet<String>,
    /// Source files that its stacks name.
    sources: SourceFiles,
}

/// The newest reading of a quantity.
struct LastReading {
    row: Counter,
    /// Time when a row was last written.
    written_ns: u64,
}

impl OpenFile {
    /// A file without processes yet.
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
        }
    }

    /// Returns the rank whose rows it holds.
    pub fn rank(&self) -> Option<u32> {
        match self.owner {
            FileOwner::Rank(rank) => Some(rank.number),
            FileOwner::Unranked | FileOwner::Launcher => None,
        }
    }

    /// Writes the samples that wait. Samples of one kind are written together: what they have in
    /// common then costs next to nothing. A few wait for more.
    pub fn write_samples(&mut self) -> Result<(), TraceError> {
        let waited_ns = sys::monotonic_ns().saturating_sub(self.samples_ns);
        match self.samples_waiting() < WORTH_A_BLOCK && waited_ns < SAMPLES_WAIT_NS {
            true => Ok(()),
            false => self.write_all_samples(),
        }
    }

    /// Does the same as [`Self::write_samples`], however few they are.
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

    /// Samples that wait.
    pub fn samples_waiting(&self) -> usize {
        self.samples.len() + self.event_samples.len()
    }

    /// Writes a fact about the whole file: key, and value as JSON.
    pub fn write_property(&mut self, key: &str, value: &str) {
        let (key, value) = (self.writer.name(key), self.writer.name(value));
        self.writer.property(Property { key, value });
    }

    /// Writes size and time of a file of Python's code, the first time that it is named.
    pub fn python_source(&mut self, path: &str, pid: u32) {
        if let Some((key, value)) = self.sources.of_python(path, pid) {
            self.write_property(&key, &value);
        }
    }

    /// The same of a file that a module was compiled from.
    pub fn module_source(&mut self, path: &str, module: &ModuleFile) {
        if let Some((key, value)) = self.sources.of_module(path, module) {
            self.write_property(&key, &value);
        }
    }

    /// Writes a reading. One that equals the last row waits until that is a second old, or another
    /// follows: curves look the same as with all readings.
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

    /// Forgets the readings of a process that is gone, the last ones written.
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
    /// Facts of the whole run that each file gets: key, and value as JSON.
    facts: Vec<(&'static str, String)>,
    /// Open files; never removed, so that indexes stay valid.
    pub open: Vec<OpenFile>,
    /// Whether any process named a rank.
    pub ranked: bool,
    /// Time (ns) when a file for processes without a rank could not be created, and why.
    refused: Option<(u64, String)>,
}

impl Files {
    /// Starts without open files.
    pub fn new(directory: &Path, header: TraceHeader, facts: Vec<(&'static str, String)>) -> Files {
        Files {
            directory: directory.to_owned(),
            header,
            facts,
            open: Vec::new(),
            ranked: false,
            refused: None,
        }
    }

    /// Opens a file under the first name that is free.
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
            match TraceWriter::create(&path, &header) {
                Ok(writer) => {
                    return Ok(self.register(writer, owner, path));
                }
                Err(e) if exists(&path) => {
                    self.rename_launcher_file(&path, &owner);
                    // The name may be free now.
                    if !exists(&path)
                        && let Ok(writer) = TraceWriter::create(&path, &header)
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

    /// Takes an opened file in; its index.
    fn register(&mut self, writer: TraceWriter, owner: FileOwner, path: PathBuf) -> usize {
        let mut open = OpenFile::new(writer, owner, path);
        for (key, value) in &self.facts {
            open.write_property(key, value);
        }
        self.open.push(open);
        self.open.len() - 1
    }

    /// A rank's name may be held by a collector on another host that opened it
    /// before any rank was known: that one is a launcher.
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

    /// Returns the file of processes without a rank, which is opened when first needed. Since
    /// thousands of samples may need it, a failure to create it is only retried a second later.
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

    /// A new file for `rank`: `rank-3.tprof`, or, where that name was taken, `rank-3.1.tprof`.
    pub fn rank(&mut self, rank: Rank) -> Result<usize, CollectError> {
        if !self.ranked {
            self.ranked = true;
            if let Some(at) = self.open.iter().position(|f| f.owner == FileOwner::Unranked) {
                self.becomes_launcher(at);
            }
        }
        self.create(FileOwner::Rank(rank), &mut numbered(&format!("rank-{}", rank.number)))
    }

    /// Renames a file after its processes turned out to be launchers.
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
                    // A collector on another host may have moved it already.
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

    /// Newest file of `rank`.
    pub fn newest_of(&self, rank: &Rank) -> Option<usize> {
        self.open.iter().rposition(|f| matches!(&f.owner, FileOwner::Rank(of) if of.is_same(rank)))
    }

    /// The ranks that have files.
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

    /// Bytes in all files.
    pub fn bytes(&self) -> u64 {
        self.open.iter().map(|f| f.writer.bytes_written()).sum()
    }
}

/// The trace file in a directory that has this inode.
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

/// `stem.tprof`, `stem.1.tprof`, …
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
    fn readings_that_stay_as_they_are_have_a_row_a_second() {
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
        // The last before a change and before the end are there.
        assert_eq!(rows, [(0, 5.0), (10, 5.0), (13, 5.0), (14, 6.0), (15, 6.0)]);
    }
}
