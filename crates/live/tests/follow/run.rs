//! A run that grows while a follower reads it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use tprof_live::{EventKind, Follower, PlainFiles, Snapshot};
use tprof_trace::model::*;
use tprof_trace::run::RunInfo;
use tprof_trace::{TraceHeader, TraceWriter};

pub const SECOND: u64 = 1_000_000_000;
/// When a run begins, on the clock of its rank files and its `run.json`.
pub const START: u64 = 500 * SECOND;

pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// A run that began in the past, so that rows can be written with times between then and now. A
/// time that a method takes counts from the beginning of the run.
pub struct Run {
    pub directory: tempfile::TempDir,
    pub start_unix_ns: u64,
    pub writers: BTreeMap<u32, TraceWriter>,
    pub info: RunInfo,
}

impl Run {
    /// Creates a run that began `ago_ns` ago.
    pub fn begun(ago_ns: u64, ranks: u32) -> Run {
        let directory = tempfile::tempdir().unwrap();
        let start_unix_ns = unix_ns() - ago_ns;
        let info = RunInfo {
            version: 1,
            tprof: "0.1.0".to_owned(),
            // The info file names another host, where the follower can't look up the collector's
            // pid. So the age of `run.json` decides whether the run is in progress.
            host: "elsewhere".to_owned(),
            command: vec!["python".to_owned(), "train.py".to_owned()],
            start_ns: START,
            start_unix_ns,
            collector_pid: 7,
            ..RunInfo::default()
        };
        let mut run = Run { directory, start_unix_ns, writers: BTreeMap::new(), info };
        (0..ranks).for_each(|rank| run.add_rank(rank));
        run.write_info();
        run
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn file(&self, rank: u32) -> PathBuf {
        self.path().join(format!("rank-{rank}.tprof"))
    }

    /// Creates the file of a rank, with one process.
    pub fn add_rank(&mut self, rank: u32) {
        let header = TraceHeader {
            host: "elsewhere".to_owned(),
            rank: Some(rank),
            start_ns: START,
            start_unix_ns: self.start_unix_ns,
            ..TraceHeader::default()
        };
        let mut writer = TraceWriter::create(&self.file(rank), &header).unwrap();
        let command = writer.name("/usr/bin/python train.py");
        writer.process(&Process {
            process: 0,
            pid: 100 + rank,
            parent: 1,
            rank: Some(rank),
            command,
            exe: command,
            start_ns: START,
            memory: MemoryRecording::Off,
        });
        writer.flush().unwrap();
        self.writers.insert(rank, writer);
        self.info.files.push(format!("rank-{rank}.tprof"));
    }

    pub fn write_info(&self) {
        let text = serde_json::to_vec(&self.info).unwrap();
        fs::write(self.path().join("run.json"), text).unwrap();
    }

    pub fn writer(&mut self, rank: u32) -> &mut TraceWriter {
        self.writers.get_mut(&rank).unwrap()
    }

    /// Writes a mark `step N` at each of these times, where N is the time in ms. A mark ends the
    /// step that the previous mark began, so n marks make n - 1 steps.
    pub fn mark_steps(&mut self, rank: u32, times_ns: impl IntoIterator<Item = u64>) {
        let writer = self.writer(rank);
        for at_ns in times_ns {
            let name = writer.name(&format!("step {}", at_ns / 1_000_000));
            let (process, kind) = (Some(0), MarkKind::Step);
            writer.mark(Mark { time_ns: START + at_ns, process, name, kind });
        }
        writer.flush().unwrap();
    }

    pub fn counter(&mut self, rank: u32, at_ns: u64, name: &str, value: f64) {
        let writer = self.writer(rank);
        let name = writer.name(name);
        let (time_ns, process) = (START + at_ns, Some(0));
        writer.counter(Counter { time_ns, process, device: None, name, value });
        writer.flush().unwrap();
    }

    /// Writes the end of a rank's process.
    pub fn end_process(&mut self, rank: u32, at_ns: u64, end: ProcessEnd) {
        let writer = self.writer(rank);
        writer.process_end(0, START + at_ns, end);
        writer.flush().unwrap();
    }

    pub fn follower(&self) -> Follower<PlainFiles> {
        Follower::new(PlainFiles::of(self.path()).unwrap())
    }
}

/// Returns the first `count` multiples of `step_ns`.
pub fn every(step_ns: u64, count: u64) -> impl Iterator<Item = u64> {
    (1..=count).map(move |at| at * step_ns)
}

pub fn values(snapshot: &Snapshot, key: &str) -> Vec<Option<f64>> {
    snapshot.metrics.iter().find(|metric| metric.key == key).unwrap().values.clone()
}

pub fn event_kinds(snapshot: &Snapshot) -> Vec<(Option<u32>, EventKind)> {
    snapshot.events.iter().map(|event| (event.rank, event.kind)).collect()
}
