//! Lists every program image of a run, with its process, its time and its end.

use std::collections::HashMap;

use serde::ser::{Serialize, SerializeMap, Serializer};
use tprof_facts::{Clock, labels};
use tprof_trace::TraceFile;
use tprof_trace::model::ProcessEnd;
use tprof_trace::run::{ImageLife, ProcessInfo, RunInfo, count_processes};

use crate::base::reading::{Reading, entry};

/// The end of a program image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageEnd {
    /// An `exec` began another image of the same process.
    Replaced,
    /// It exited with this status.
    Status(i32),
    /// This signal ended it.
    Signal(i32),
    /// The image did not end, or its end is unknown. The text says which.
    Otherwise(String),
}

/// A program image: the program that a process runs from the process's start or an `exec` to the
/// next `exec`, or to the process's end.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessRow {
    /// Host that it ran on; empty if unknown.
    pub host: String,
    /// Id of the process.
    pub pid: u32,
    /// Id of the parent process.
    pub parent: u32,
    /// Rank that the image belongs to; `None` for launchers.
    pub rank: Option<u32>,
    /// Command line of the process.
    pub command: String,
    /// The end of the image.
    pub ended: ImageEnd,
    /// The time at which the image attached, nanoseconds since the run began.
    pub start_ns: u64,
    /// The time at which the image ended, nanoseconds since the run began.
    pub end_ns: Reading<u64>,
    /// File that holds its data.
    pub file: Option<String>,
    /// Number of the image's records that were lost, including events before the image could
    /// attach.
    pub lost: Reading<u64>,
    /// Whether it is tprof itself, which the job ran.
    pub own: bool,
}

impl Serialize for ProcessRow {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("host", &self.host)?;
        map.serialize_entry("pid", &self.pid)?;
        map.serialize_entry("parent", &self.parent)?;
        map.serialize_entry("rank", &self.rank)?;
        map.serialize_entry("command", &self.command)?;
        match &self.ended {
            ImageEnd::Status(status) => map.serialize_entry("exit_status", status)?,
            ImageEnd::Signal(signal) => map.serialize_entry("signal", signal)?,
            ImageEnd::Replaced => {
                entry(&mut map, "exit_status", &Reading::<i32>::missing(REPLACED))?;
            }
            ImageEnd::Otherwise(why) => {
                entry(&mut map, "exit_status", &Reading::<i32>::missing(why.as_str()))?;
            }
        }
        map.serialize_entry("start_ns", &self.start_ns)?;
        entry(&mut map, "end_ns", &self.end_ns)?;
        map.serialize_entry("file", &self.file)?;
        entry(&mut map, "lost", &self.lost)?;
        map.serialize_entry("own", &self.own)?;
        map.end()
    }
}

impl ProcessRow {
    /// Replaces the start and the end of a process that the file knows only from samples by the
    /// times that the collector recorded.
    fn take(&mut self, collected: &ProcessRow) {
        self.ended = collected.ended.clone();
        self.end_ns = collected.end_ns.clone();
        self.start_ns = collected.start_ns;
        self.own = collected.own;
    }
}

/// Whether a row of the collector is about the same program as a file's row that was made from
/// samples. A program is known only from samples if it did not attach, so the file does not have
/// its end.
fn is_same(row: &ProcessRow, collected: &ProcessRow) -> bool {
    row.pid == collected.pid
        && [otherwise(UNKNOWN), otherwise("")].contains(&row.ended)
        && collected.end_ns.get().is_none_or(|end_ns| row.start_ns < end_ns)
        && row.end_ns.get().is_none_or(|end_ns| collected.start_ns < end_ns)
        && is_cut_to(labels::program(&row.command), labels::program(&collected.command))
}

/// Whether `shown` is a program's name, or the first 15 bytes of it, to which the kernel cuts
/// names.
fn is_cut_to(shown: &str, name: &str) -> bool {
    shown == name || shown.len() == 15 && name.starts_with(shown)
}

/// The text for an image that an `exec` replaced.
pub const REPLACED: &str = "replaced by another program (exec)";
const UNKNOWN: &str = "unknown";
const NO_END: &str = "its end was not recorded";

/// Returns the program images of one file.
pub fn of_file(file: &TraceFile, name: &str, rank: Option<u32>, clock: Clock) -> Vec<ProcessRow> {
    let row = |process: &tprof_trace::model::Process| {
        let end = file.process_end(process.process);
        ProcessRow {
            host: file.header().host.clone(),
            pid: process.pid,
            parent: process.parent,
            rank,
            command: file.name(process.command).to_owned(),
            ended: match end.map(|(_, how)| how) {
                Some(ProcessEnd::Exited(status)) => ImageEnd::Status(status),
                Some(ProcessEnd::Signal(signal)) => ImageEnd::Signal(signal),
                Some(ProcessEnd::Exec) => ImageEnd::Replaced,
                Some(ProcessEnd::Unknown) => otherwise(UNKNOWN),
                None => otherwise(""),
            },
            start_ns: clock.since_start(process.start_ns),
            end_ns: match end {
                Some((time_ns, _)) => Reading::Is(clock.since_start(time_ns)),
                None => Reading::missing(NO_END),
            },
            file: Some(name.to_owned()),
            lost: Reading::missing("losses were not counted by process"),
            // A file doesn't say.
            own: false,
        }
    };
    file.processes().iter().map(row).collect()
}

/// Joins the rows of the files with those that only the collectors know. With `only`, the result
/// has only the rows with data in these files.
pub fn join(
    infos: &[RunInfo],
    mut rows: Vec<ProcessRow>,
    only: Option<&[&str]>,
    clock: impl Fn(&RunInfo) -> Clock,
) -> Vec<ProcessRow> {
    let known = rows.iter().enumerate().map(|(at, row)| ((row.pid, row.start_ns), at));
    let known: HashMap<(u32, u64), usize> = known.collect();
    for info in infos {
        let clock = clock(info);
        for process in &info.processes {
            let mine = |files: &[&str]| process.file.as_deref().is_some_and(|f| files.contains(&f));
            let collected = of_info(process, &info.host, clock);
            if let Some(at) = known.get(&(collected.pid, collected.start_ns)) {
                // The collector may have learned the end only after the file was written.
                let row = &mut rows[*at];
                row.lost = collected.lost.clone();
                row.own = collected.own;
                let ended = matches!(collected.ended, ImageEnd::Status(_) | ImageEnd::Signal(_));
                if ended && [otherwise(UNKNOWN), otherwise("")].contains(&row.ended) {
                    row.take(&collected);
                }
                continue;
            }
            let same = |row: &&mut ProcessRow| {
                row.file.is_some() && collected.file.is_none() && is_same(row, &collected)
            };
            match rows.iter_mut().find(same) {
                Some(row) => row.take(&collected),
                None if only.is_none_or(mine) => rows.push(collected),
                None => {}
            }
        }
    }
    rows.sort_by_key(|row| (row.start_ns, row.pid));
    rows
}

fn of_info(process: &ProcessInfo, host: &str, clock: Clock) -> ProcessRow {
    ProcessRow {
        host: host.to_owned(),
        pid: process.pid,
        parent: process.parent,
        rank: process.rank,
        command: process.command.clone(),
        ended: match (process.exit_status, process.signal) {
            (_, Some(signal)) => ImageEnd::Signal(signal),
            (Some(status), None) => ImageEnd::Status(status),
            (None, None) if process.ended_by == "exec" => ImageEnd::Replaced,
            (None, None) => otherwise(&process.ended_by),
        },
        start_ns: clock.since_start(process.start_ns),
        end_ns: match process.end_ns {
            Some(time_ns) => Reading::Is(clock.since_start(time_ns)),
            None => Reading::missing(NO_END),
        },
        file: process.file.clone(),
        lost: lost_of(process),
        own: process.own,
    }
}

fn lost_of(process: &ProcessInfo) -> Reading<u64> {
    process.lost.map_or_else(|| Reading::missing("it was not recorded"), Reading::Is)
}

fn otherwise(how: &str) -> ImageEnd {
    ImageEnd::Otherwise(match how {
        "running" => "still running when this was written".to_owned(),
        "unknown" => "its end was not recorded".to_owned(),
        _ => NO_END.to_owned(),
    })
}

/// Number of processes to which these images belong.
pub fn count(rows: &[ProcessRow]) -> usize {
    count_processes(rows.iter().map(|row| ImageLife {
        // An imported run has no host, and each of its files has its own processes.
        place: if row.host.is_empty() { row.file.as_deref().unwrap_or("") } else { &row.host },
        pid: row.pid,
        start_ns: row.start_ns,
        end_ns: row.end_ns.get(),
        replaced: row.ended == ImageEnd::Replaced,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u32, command: &str, lasted: (u64, u64), ended: ImageEnd) -> ProcessRow {
        ProcessRow {
            host: "node1".to_owned(),
            pid,
            parent: 1,
            rank: None,
            command: command.to_owned(),
            ended,
            start_ns: lasted.0,
            end_ns: Reading::Is(lasted.1),
            file: None,
            lost: Reading::Is(0),
            own: false,
        }
    }

    #[test]
    fn a_program_in_samples_and_in_the_collectors_record_is_one_row() {
        let unknown = || otherwise(UNKNOWN);
        let sampled = row(7, "./fixed a b", (0, 100), unknown());
        let collected = row(7, "/opt/fixed", (20, 90), ImageEnd::Status(3));
        assert!(is_same(&sampled, &collected));
        let mut both = sampled.clone();
        both.take(&collected);
        assert_eq!(
            (&*both.command, both.start_ns, &both.ended),
            ("./fixed a b", 20, &collected.ended)
        );
        assert_eq!(both.end_ns, Reading::Is(90));
        // Not the same: another process, another program, another time, and a process whose end is
        // in its file.
        assert!(!is_same(&row(8, "fixed", (0, 100), unknown()), &collected));
        assert!(!is_same(&row(7, "sh -c fixed", (0, 100), unknown()), &collected));
        assert!(!is_same(&row(7, "fixed", (95, 100), unknown()), &collected));
        assert!(!is_same(&row(7, "fixed", (0, 100), ImageEnd::Status(0)), &collected));
    }
}
