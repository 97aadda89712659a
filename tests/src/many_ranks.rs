//! Makes runs of many ranks from runs of few: every rank is a copy of one of the source's ranks,
//! with its own rank number, its own process ids and slightly shifted times.
//!
//! Collectives keep their sequence numbers, so that the copies seem to have taken part in the same
//! ones. The shifts make some ranks late, and the same ranks every time.

use crate::synthetic::scatter;
use std::path::Path;
use tprof_trace::model::*;
use tprof_trace::run::{ProcessInfo, RUN_VERSION, RunInfo};
use tprof_trace::{RunDir, TraceError, TraceFile, TraceHeader, TraceRow, TraceWriter};

/// Longest shift of a rank's times.
const MAX_SHIFT_NS: u64 = 200_000;
/// Difference between the process ids of two ranks.
const PIDS_APART: u32 = 16;

/// Makes a run of `ranks` ranks in a directory that must not exist yet.
pub fn many_ranks(source: &Path, output: &Path, ranks: u32) -> Result<(), TraceError> {
    let run = RunDir::open(source)?;
    let io = |what| move |source| TraceError::Io { path: output.to_owned(), what, source };
    std::fs::create_dir(output).map_err(io("create"))?;
    let mut info = RunInfo {
        version: RUN_VERSION,
        tprof: "synthetic".to_owned(),
        finished: true,
        ..run.infos().first().cloned().unwrap_or_default()
    };
    info.processes.clear();
    info.files.clear();
    let sources = run.files().iter().map(|file| TraceFile::open(&file.path));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    let mut random = 1;
    for rank in 0..ranks {
        let source = &sources[rank as usize % sources.len()];
        let shift_ns = scatter(&mut random) % MAX_SHIFT_NS;
        let name = format!("rank-{rank}.tprof");
        let copy = Copy { source, rank, ranks, shift_ns };
        info.processes.extend(copy.write(&output.join(&name))?);
        info.files.push(name);
    }
    info.end_ns = info.end_ns.map(|end| end + MAX_SHIFT_NS);
    info.completeness.recorded *= u64::from(ranks) / sources.len().max(1) as u64;
    let text = tprof_trace::info_text(&info).expect("an info that was read can be written");
    std::fs::write(output.join("run.json"), text).map_err(io("write"))
}

/// A row with times that can be moved.
trait Shifted: TraceRow {
    fn shift(&mut self, by_ns: u64);
}

macro_rules! shifted {
    ($($row:ident $field:ident,)*) => { $(
        impl Shifted for $row {
            fn shift(&mut self, by_ns: u64) {
                self.$field += by_ns;
            }
        }
    )* };
}
shifted! {
    Span start_ns, Kernel start_ns, MemoryCopy start_ns, Synchronization start_ns,
    DeviceSpan start_ns, Collective start_ns, DeviceAllocation time_ns, FlowPoint time_ns,
    Sample time_ns,
}

/// A copy of a rank that is being made.
struct Copy<'a> {
    source: &'a TraceFile,
    rank: u32,
    ranks: u32,
    shift_ns: u64,
}

impl Copy<'_> {
    fn write(&self, path: &Path) -> Result<Vec<ProcessInfo>, TraceError> {
        let header = self.source.header();
        let mut writer = TraceWriter::create(
            path,
            &TraceHeader {
                rank: Some(self.rank),
                provisional: false,
                instance: 0,
                ..header.clone()
            },
        )?;
        // Names are interned in the same order as in the source, so they get the same numbers.
        for id in 1..=self.source.last_name().0 {
            let given = writer.name(self.source.name(NameId(id)));
            assert_eq!(given.0, id, "the source's names have gaps");
        }
        let processes = self.small(&mut writer);
        self.rows::<Span>(&mut writer)?;
        self.rows::<Kernel>(&mut writer)?;
        self.rows::<MemoryCopy>(&mut writer)?;
        self.rows::<Synchronization>(&mut writer)?;
        self.rows::<DeviceSpan>(&mut writer)?;
        self.rows::<Collective>(&mut writer)?;
        self.rows::<DeviceAllocation>(&mut writer)?;
        self.rows::<FlowPoint>(&mut writer)?;
        self.rows::<Sample>(&mut writer)?;
        writer.finish()?;
        Ok(processes)
    }

    fn rows<R: Shifted>(&self, writer: &mut TraceWriter) -> Result<(), TraceError> {
        for mut rows in self.source.blocks::<R>() {
            rows.iter_mut().for_each(|row| row.shift(self.shift_ns));
            writer.write(&mut rows)?;
        }
        Ok(())
    }

    fn small(&self, writer: &mut TraceWriter) -> Vec<ProcessInfo> {
        let source = self.source;
        let mut infos = Vec::new();
        for process in source.processes() {
            let pid = process.pid.wrapping_add(self.rank * PIDS_APART);
            let start_ns = process.start_ns + self.shift_ns;
            writer.process(&Process { pid, rank: Some(self.rank), start_ns, ..process.clone() });
            infos.push(ProcessInfo {
                pid,
                rank: Some(self.rank),
                command: source.name(process.command).to_owned(),
                ended_by: "unknown".to_owned(),
                start_ns,
                file: Some(format!("rank-{}.tprof", self.rank)),
                ..ProcessInfo::default()
            });
        }
        for thread in source.threads() {
            writer.thread(&Thread { start_ns: thread.start_ns + self.shift_ns, ..thread.clone() });
            if let Some(name) = source.thread_name(thread.thread) {
                let name = writer.name(name);
                writer.thread_name(thread.thread, thread.start_ns, name);
            }
        }
        for counter in source.counters() {
            writer.counter(Counter { time_ns: counter.time_ns + self.shift_ns, ..*counter });
        }
        for mark in source.marks() {
            writer.mark(Mark { time_ns: mark.time_ns + self.shift_ns, ..*mark });
        }
        source.losses().iter().for_each(|loss| writer.loss(*loss));
        source.devices().iter().for_each(|device| writer.device(device));
        source.streams().iter().for_each(|stream| writer.stream(stream));
        for group in source.communicators() {
            writer.communicator(&Communicator {
                size: Some(self.ranks),
                rank: Some(self.rank),
                ranks: (0..u64::from(self.ranks)).collect(),
                ..group.clone()
            });
        }
        for (key, value) in source.properties() {
            let (key, value) = (writer.name(key), writer.name(value));
            writer.property(Property { key, value });
        }
        infos
    }
}
