//! Reads the info files that collectors write about the run. Each collector rewrites its own file
//! every half second. A poll reads only files that have changed.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use tprof_trace::live::{is_collector_writing, is_this_machine};
use tprof_trace::run::RunInfo;
use tprof_trace::{InfoFile, is_info_name};

use crate::files::{FileEntry, RunFiles};
use crate::snapshot::{RunState, Totals};

/// Largest number of bytes to read of an info file. A collector's files are smaller, and a file
/// that was cut here can't be parsed.
const MOST_BYTES: u64 = 64 << 20;
/// Largest number of info files to read.
const MOST_FILES: usize = 4096;

/// Info files of a run, by name.
#[derive(Debug, Default)]
pub struct Infos {
    all: BTreeMap<String, OwnFile>,
}

/// The info file of one collector.
#[derive(Debug)]
struct OwnFile {
    /// Inode, length, and modification time in seconds and nanoseconds.
    stamp: (u64, u64, i64, i64),
    written: SystemTime,
    info: Option<Box<RunInfo>>,
    /// Whether the collector that wrote the file uses this host's clock.
    is_this_machine: bool,
}

impl Infos {
    /// Reads the info files that have changed. If a file cannot be read now, its last content
    /// stays.
    pub fn poll(&mut self, files: &impl RunFiles, entries: &[FileEntry]) {
        self.all.retain(|name, _| entries.iter().any(|entry| entry.name == *name));
        let names = entries.iter().map(|entry| &entry.name).filter(|name| is_info_name(name));
        for name in names.take(MOST_FILES) {
            let _ = self.read(files, name);
        }
    }

    fn read(&mut self, files: &impl RunFiles, name: &str) -> io::Result<()> {
        let file = files.open(name)?;
        let about = file.metadata()?;
        let stamp = (about.ino(), about.len(), about.mtime(), about.mtime_nsec());
        if self.all.get(name).is_some_and(|own| own.stamp == stamp) || !about.is_file() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut bytes)?;
        let written = about.modified()?;
        let before = self.all.remove(name);
        let info = match InfoFile::parse(&bytes) {
            InfoFile::Run(info) => Some(info),
            _ => before.as_ref().and_then(|own| own.info.clone()),
        };
        let is_same = |own: &OwnFile| match (&own.info, &info) {
            (Some(a), Some(b)) => (a.collector_pid, &a.host) == (b.collector_pid, &b.host),
            _ => false,
        };
        let is_this_machine = match before.filter(is_same) {
            Some(before) => before.is_this_machine,
            None => info.as_deref().is_some_and(is_this_machine),
        };
        self.all.insert(name.to_owned(), OwnFile { stamp, written, info, is_this_machine });
        Ok(())
    }

    /// Iterates over the infos that could be read.
    pub fn iter(&self) -> impl Iterator<Item = &RunInfo> {
        self.all.values().filter_map(|own| own.info.as_deref())
    }

    /// Returns the rank files of collectors that use this host's clock.
    pub fn files_of_this_host(&self) -> HashSet<&str> {
        let here = self.all.values().filter(|own| own.is_this_machine);
        let infos = here.filter_map(|own| own.info.as_deref());
        infos.flat_map(|info| info.files.iter().map(String::as_str)).collect()
    }

    /// Returns whether the run is in progress. Before any collector has written an info file,
    /// `is_fresh` (whether a rank file has new data) decides.
    pub fn state(&self, is_fresh: bool) -> RunState {
        let known = || self.all.values().filter_map(|own| Some((own, own.info.as_deref()?)));
        let lives = |(own, info): (&OwnFile, &RunInfo)| is_collector_writing(info, own.written);
        if known().any(lives) || known().next().is_none() && is_fresh {
            return RunState::Running;
        }
        match known().next().is_some() && known().all(|(_, info)| info.finished) {
            true => RunState::Finished,
            false => RunState::CutOff,
        }
    }

    /// Returns the command of the first collector, `run.json`; without it, of any collector.
    pub fn command(&self) -> Vec<String> {
        let first = self.all.get("run.json").and_then(|own| own.info.as_deref());
        first.or_else(|| self.iter().next()).map(|info| info.command.clone()).unwrap_or_default()
    }

    /// Returns sums over the collectors. `bytes` and `damaged` are 0, because only a reader of the
    /// files knows them.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for info in self.iter() {
            totals.recorded = (totals.recorded)
                .saturating_add(info.completeness.recorded)
                .saturating_add(info.completeness.samples);
            totals.lost = totals.lost.saturating_add(info.completeness.lost);
            totals.processes += info.process_count() as u64;
            totals.wait_ns = totals.wait_ns.saturating_add(info.overhead.wait_ns);
            totals.collector_cpu_ns =
                totals.collector_cpu_ns.saturating_add(info.overhead.collector_cpu_ns);
        }
        totals
    }

    /// Returns the number of lost events by rank file, as far as its processes reported them.
    pub fn lost(&self) -> BTreeMap<&str, u64> {
        let mut lost = BTreeMap::new();
        for process in self.iter().flat_map(|info| &info.processes) {
            if let (Some(file), Some(count)) = (&process.file, process.lost) {
                let of_file: &mut u64 = lost.entry(file.as_str()).or_default();
                *of_file = of_file.saturating_add(count);
            }
        }
        lost
    }

    /// Returns the number of lost events by host, what was lost, and why.
    pub fn losses(&self) -> BTreeMap<(&str, &str, &str), u64> {
        let mut all = BTreeMap::new();
        for info in self.iter() {
            for loss in &info.completeness.losses {
                let key = (info.host.as_str(), loss.what.as_str(), loss.why.as_str());
                let of_kind: &mut u64 = all.entry(key).or_default();
                *of_kind = of_kind.saturating_add(loss.count);
            }
        }
        all
    }
}
