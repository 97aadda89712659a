//! Every process image of a run: who, when, and how it ended.

use std::collections::HashSet;

use serde::ser::{Serialize, SerializeMap, Serializer};
use tprof_trace::TraceFile;
use tprof_trace::model::ProcessEnd;
use tprof_trace::run::{ProcessInfo, RunInfo};

use crate::clock::Clock;
use crate::reading::{Reading, entry};

/// How a process image ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
    /// Not known, or not at all: why.
    Otherwise(String),
}

/// A process image.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessRow {
    /// Process id.
    pub pid: u32,
    /// Parent's process id.
    pub parent: u32,
    /// Rank that it counts for; `None` for launchers.
    pub rank: Option<u32>,
    /// Command line.
    pub command: String,
    /// How it ended.
    pub ended: Ended,
    /// When it attached, since the run began.
    pub start_ns: u64,
    /// When it ended, since the run began.
    pub end_ns: Reading<u64>,
    /// File that holds its data.
    pub file: Option<String>,
}

impl Serialize for ProcessRow {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("pid", &self.pid)?;
        map.serialize_entry("parent", &self.parent)?;
        map.serialize_entry("rank", &self.rank)?;
        map.serialize_entry("command", &self.command)?;
        match &self.ended {
            Ended::Status(status) => map.serialize_entry("exit_status", status)?,
            Ended::Signal(signal) => map.serialize_entry("signal", signal)?,
            Ended::Otherwise(why) => {
                entry(&mut map, "exit_status", &Reading::<i32>::missing(why.as_str()))?;
            }
        }
        map.serialize_entry("start_ns", &self.start_ns)?;
        entry(&mut map, "end_ns", &self.end_ns)?;
        map.serialize_entry("file", &self.file)?;
        map.end()
    }
}

const NO_END: &str = "its end was not recorded";

/// Process images of one file.
pub(crate) fn of_file(
    file: &TraceFile,
    name: &str,
    rank: Option<u32>,
    clock: Clock,
) -> Vec<ProcessRow> {
    let row = |process: &tprof_trace::model::Process| {
        let end = file.process_end(process.process);
        ProcessRow {
            pid: process.pid,
            parent: process.parent,
            rank,
            command: file.name(process.command).to_owned(),
            ended: match end.map(|(_, how)| how) {
                Some(ProcessEnd::Exited(status)) => Ended::Status(status),
                Some(ProcessEnd::Signal(signal)) => Ended::Signal(signal),
                Some(ProcessEnd::Exec) => otherwise("exec"),
                Some(ProcessEnd::Unknown) => otherwise("unknown"),
                None => otherwise(""),
            },
            start_ns: clock.since_start(process.start_ns),
            end_ns: match end {
                Some((time_ns, _)) => Reading::Is(clock.since_start(time_ns)),
                None => Reading::missing(NO_END),
            },
            file: Some(name.to_owned()),
        }
    };
    file.processes().iter().map(row).collect()
}

/// Rows of the files, and those that only the collectors know of. With `only`,
/// those whose data is in these files.
pub(crate) fn join(
    infos: &[RunInfo],
    mut rows: Vec<ProcessRow>,
    only: Option<&[&str]>,
    clock: impl Fn(&RunInfo) -> Clock,
) -> Vec<ProcessRow> {
    let known: HashSet<(u32, u64)> = rows.iter().map(|row| (row.pid, row.start_ns)).collect();
    for info in infos {
        let clock = clock(info);
        let wanted = |process: &&ProcessInfo| {
            let mine = |files: &[&str]| process.file.as_deref().is_some_and(|f| files.contains(&f));
            only.is_none_or(mine)
                && !known.contains(&(process.pid, clock.since_start(process.start_ns)))
        };
        rows.extend(info.processes.iter().filter(wanted).map(|process| of_info(process, clock)));
    }
    rows.sort_by_key(|row| (row.start_ns, row.pid));
    rows
}

fn of_info(process: &ProcessInfo, clock: Clock) -> ProcessRow {
    ProcessRow {
        pid: process.pid,
        parent: process.parent,
        rank: process.rank,
        command: process.command.clone(),
        ended: match (process.exit_status, process.signal) {
            (_, Some(signal)) => Ended::Signal(signal),
            (Some(status), None) => Ended::Status(status),
            (None, None) => otherwise(&process.ended_by),
        },
        start_ns: clock.since_start(process.start_ns),
        end_ns: match process.end_ns {
            Some(time_ns) => Reading::Is(clock.since_start(time_ns)),
            None => Reading::missing(NO_END),
        },
        file: process.file.clone(),
    }
}

fn otherwise(how: &str) -> Ended {
    Ended::Otherwise(match how {
        "exec" => "replaced by another program (exec)".to_owned(),
        "running" => "still running when this was written".to_owned(),
        "unknown" => "gone; nobody saw how".to_owned(),
        _ => NO_END.to_owned(),
    })
}
