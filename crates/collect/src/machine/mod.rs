//! Errors of the machine beside the run: what the kernel logs, what the network and the devices
//! count, and what the GPU driver reports; and the bytes that went over the network. The job is not
//! involved.
//!
//! An error is a mark in each file of the run, because any rank may suffer from it. A counter has
//! rows only where it changes.

mod changes;
mod network;
mod traffic;
mod watcher;

pub use changes::{Changes, TotalAt};
pub use watcher::{MachineWatcher, WatchedProcesses};

use crate::output::files::Files;
use crate::output::losses::Losses;
use std::collections::BTreeMap;
use tprof_trace::model::{Counter, Mark, MarkKind, Property, property};

/// Name of a loss: lines of the kernel's log that were not read, or errors that are not stored.
const LINES: &str = "lines of the kernel's log";
const ERRORS: &str = "errors of the machine";
const TOO_MANY: &str = "a run stores 1000 of them";
/// Most errors of a run. They stay in memory for files that are opened later.
const MOST_ERRORS: usize = 1000;
/// Most rows of counters that wait for the first file.
const MOST_WAITING: usize = 4096;

/// A message about the machine.
#[derive(Clone, Debug, PartialEq)]
pub enum MachineMessage {
    /// The value of [`property::MACHINE`]. It replaces the previous one.
    Facts(String),
    /// The machine reported an error.
    Error {
        /// Time on CLOCK_MONOTONIC, ns.
        time_ns: u64,
        /// The text of the error, as the mark has it.
        text: String,
    },
    /// The total of a counter of errors or bytes.
    Counter(ErrorCounter),
    /// Lines of the kernel's log were lost.
    LinesLost {
        /// Why they were lost, in words.
        why: &'static str,
        /// How many lines were lost.
        count: u64,
    },
}

/// The total of a counter of errors at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorCounter {
    /// Time of the reading, ns.
    pub time_ns: u64,
    /// NVML's number of the device, if the counter belongs to one.
    pub device: Option<u32>,
    /// Name of the counter.
    pub name: String,
    /// The total since the run began.
    pub value: f64,
}

impl ErrorCounter {
    /// Returns the total of a device's counter, or of the host's.
    pub fn of(at: TotalAt, device: Option<u32>) -> ErrorCounter {
        let TotalAt { time_ns, name, total } = at;
        ErrorCounter { time_ns, device, name, value: total as f64 }
    }
}

/// The errors and counters of the machine in a run, and how much of them each file has.
#[derive(Debug, Default)]
pub struct MachineRows {
    /// The newest facts, and how often they changed.
    facts: (String, u64),
    errors: Vec<(u64, String)>,
    /// Rows of counters that are in no file yet.
    waiting: Vec<ErrorCounter>,
    /// The last row of each counter, for files that are opened later.
    last: BTreeMap<(Option<u32>, String), ErrorCounter>,
    /// For each file, the facts and the number of errors that it has.
    written: Vec<(u64, usize)>,
}

impl MachineRows {
    /// Keeps what a message tells until it is written. What there is no room for counts as lost.
    pub fn take(&mut self, message: MachineMessage, losses: &mut Losses) {
        match message {
            MachineMessage::Facts(facts) => self.facts = (facts, self.facts.1 + 1),
            MachineMessage::Error { .. } if self.errors.len() >= MOST_ERRORS => {
                losses.lose(ERRORS, TOO_MANY, 1);
            }
            MachineMessage::Error { time_ns, text } => self.errors.push((time_ns, text)),
            MachineMessage::Counter(row) => {
                // Without a file, the last row of each counter is enough.
                if self.written.is_empty() && self.waiting.len() >= MOST_WAITING {
                    self.waiting.clear();
                }
                self.last.insert((row.device, row.name.clone()), row.clone());
                self.waiting.push(row);
            }
            MachineMessage::LinesLost { why, count } => losses.lose(LINES, why, count),
        }
    }

    /// Writes what the open files don't have yet.
    pub fn write(&mut self, files: &mut Files) {
        if files.open.is_empty() {
            return;
        }
        let had_files = self.written.len();
        self.written.resize(files.open.len(), (0, 0));
        for (at, file) in files.open.iter_mut().enumerate() {
            let (facts, errors) = &mut self.written[at];
            if *facts < self.facts.1 {
                *facts = self.facts.1;
                let key = file.writer.name(property::MACHINE);
                let value = file.writer.name(&self.facts.0);
                file.writer.property(Property { key, value });
            }
            for (time_ns, text) in &self.errors[*errors..] {
                let name = file.writer.name(text);
                let (time_ns, kind) = (*time_ns, MarkKind::MachineError);
                file.writer.mark(Mark { time_ns, process: None, name, kind });
            }
            *errors = self.errors.len();
            // A file that is opened later begins with the last total of each counter.
            let is_new = at >= had_files;
            let earlier = self.last.values().filter(|row| is_new && !self.waiting.contains(row));
            for row in earlier.chain(&self.waiting) {
                let ErrorCounter { time_ns, device, name, value } = row;
                let name = file.writer.name(name);
                let (time_ns, device, value) = (*time_ns, *device, *value);
                file.writer.counter(Counter { time_ns, process: None, device, name, value });
            }
        }
        self.waiting.clear();
    }
}
