//! Stores rows in memory until the writer flushes them.

use crate::model::*;
use crate::tables::{NameRow, ProcessEndRow, ThreadEndRow, ThreadNameRow};

/// The rows that wait for the next flush, in the order in which they are written.
#[derive(Default)]
pub(crate) struct Pending {
    pub names: Vec<NameRow>,
    pub processes: Vec<Process>,
    pub threads: Vec<Thread>,
    pub thread_names: Vec<ThreadNameRow>,
    pub modules: Vec<Module>,
    pub stacks: Vec<Stack>,
    pub symbols: Vec<Symbol>,
    pub maps: Vec<MapEvent>,
    pub totals: Vec<HeapTotals>,
    pub recording: Vec<RecordingTotals>,
    pub counters: Vec<Counter>,
    /// Names of the marks of steps, which nothing else uses. They are dropped with these.
    pub step_names: Vec<NameRow>,
    pub marks: Vec<Mark>,
    pub losses: Vec<Loss>,
    pub devices: Vec<Device>,
    pub streams: Vec<Stream>,
    pub communicators: Vec<Communicator>,
    pub clock_joins: Vec<ClockJoin>,
    pub properties: Vec<Property>,
    pub thread_counts: Vec<ThreadCounts>,
    pub thread_ends: Vec<ThreadEndRow>,
    pub process_ends: Vec<ProcessEndRow>,
    /// Memory that the rows take, bytes.
    pub bytes: usize,
}

impl Pending {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.names.len()
            + self.processes.len()
            + self.threads.len()
            + self.thread_names.len()
            + self.modules.len()
            + self.stacks.len()
            + self.symbols.len()
            + self.maps.len()
            + self.totals.len()
            + self.recording.len()
            + self.counters.len()
            + self.marks.len()
            + self.losses.len()
            + self.devices.len()
            + self.streams.len()
            + self.communicators.len()
            + self.clock_joins.len()
            + self.properties.len()
            + self.thread_counts.len()
            + self.thread_ends.len()
            + self.process_ends.len()
    }

    /// Whether only names, modules, stacks, symbols, totals and counters wait, which add detail but
    /// no events.
    pub fn only_refines(&self) -> bool {
        let refining = self.names.len()
            + self.thread_names.len()
            + self.modules.len()
            + self.stacks.len()
            + self.symbols.len()
            + self.totals.len()
            + self.recording.len()
            + self.thread_counts.len()
            + self.counters.len();
        refining == self.rows()
    }
}
