//! Loads the small tables of a file into memory and arranges them for searching.

use crate::error::Damage;
use crate::model::*;
use crate::planes::PlaneReader;
use crate::scan::{IndexRow, Source};
use crate::tables::{NameRow, ProcessEndRow, Row, ThreadEndRow, ThreadNameRow, table};
use rustc_hash::FxHashMap;
use std::collections::HashMap;

/// The rows of the small tables, arranged for searching.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub names: FxHashMap<u32, Box<str>>,
    pub processes: Vec<Process>,
    pub process_ends: HashMap<ProcessIndex, (u64, ProcessEnd)>,
    pub threads: Vec<Thread>,
    pub thread_names: HashMap<ThreadIndex, NameId>,
    pub thread_ends: HashMap<ThreadIndex, u64>,
    pub modules: Vec<Module>,
    pub stacks: Vec<Stack>,
    pub stack_rows: HashMap<(ProcessIndex, StackId), u32>,
    pub symbols: Vec<Symbol>,
    pub totals: Vec<HeapTotals>,
    pub recording: Vec<RecordingTotals>,
    pub counters: Vec<Counter>,
    pub marks: Vec<Mark>,
    pub losses: Vec<Loss>,
    pub devices: Vec<Device>,
    pub streams: Vec<Stream>,
    pub thread_counts: Vec<ThreadCounts>,
    pub communicators: Vec<Communicator>,
    pub clock_joins: Vec<ClockJoin>,
    pub properties: Vec<Property>,
}

impl Tables {
    /// Adds the rows of a block. A block of an unknown table is skipped.
    pub fn load(
        &mut self,
        source: &Source,
        block: &IndexRow,
        payload: &mut Vec<u8>,
        planes: &mut PlaneReader,
    ) -> Result<(), Damage> {
        fn add<R: Row>(to: &mut Vec<R>, rows: Result<Vec<R>, Damage>) -> Result<(), Damage> {
            to.append(&mut rows?);
            Ok(())
        }
        match block.header.table {
            table::NAMES => {
                let rows: Vec<NameRow> = source.rows(block, payload, planes)?;
                self.names.extend(rows.into_iter().map(|row| (row.id, row.text.into())));
            }
            table::PROCESS_ENDS => {
                let rows: Vec<ProcessEndRow> = source.rows(block, payload, planes)?;
                self.process_ends
                    .extend(rows.into_iter().map(|row| (row.process, (row.end_ns, row.end))));
            }
            table::THREAD_NAMES => {
                let rows: Vec<ThreadNameRow> = source.rows(block, payload, planes)?;
                self.thread_names.extend(rows.into_iter().map(|row| (row.thread, row.name)));
            }
            table::THREAD_ENDS => {
                let rows: Vec<ThreadEndRow> = source.rows(block, payload, planes)?;
                self.thread_ends.extend(rows.into_iter().map(|row| (row.thread, row.end_ns)));
            }
            table::PROCESSES => add(&mut self.processes, source.rows(block, payload, planes))?,
            table::THREADS => add(&mut self.threads, source.rows(block, payload, planes))?,
            table::MODULES => add(&mut self.modules, source.rows(block, payload, planes))?,
            table::STACKS => add(&mut self.stacks, source.rows(block, payload, planes))?,
            table::SYMBOLS => add(&mut self.symbols, source.rows(block, payload, planes))?,
            table::HEAP_TOTALS => add(&mut self.totals, source.rows(block, payload, planes))?,
            table::RECORDING_TOTALS => {
                add(&mut self.recording, source.rows(block, payload, planes))?
            }
            table::COUNTERS => add(&mut self.counters, source.rows(block, payload, planes))?,
            table::MARKS => add(&mut self.marks, source.rows(block, payload, planes))?,
            table::LOSSES => add(&mut self.losses, source.rows(block, payload, planes))?,
            table::DEVICES => add(&mut self.devices, source.rows(block, payload, planes))?,
            table::STREAMS => add(&mut self.streams, source.rows(block, payload, planes))?,
            table::THREAD_COUNTS => {
                add(&mut self.thread_counts, source.rows(block, payload, planes))?
            }
            table::COMMUNICATORS => {
                add(&mut self.communicators, source.rows(block, payload, planes))?
            }
            table::CLOCK_JOINS => add(&mut self.clock_joins, source.rows(block, payload, planes))?,
            table::PROPERTIES => add(&mut self.properties, source.rows(block, payload, planes))?,
            // This is a table of a later format.
            _ => (),
        }
        Ok(())
    }

    /// Sorts the tables that are searched, once all blocks are loaded. Later rows replace earlier
    /// rows with the same key.
    pub fn settle(&mut self) {
        last_of_each(&mut self.processes, |row| row.process);
        last_of_each(&mut self.threads, |row| row.thread);
        last_of_each(&mut self.symbols, |row| (row.process, row.address, row.depth));
        self.stack_rows =
            self.stacks.iter().zip(0..).map(|(row, at)| ((row.process, row.stack), at)).collect();
        self.totals.sort_by_key(|row| row.time_ns);
        self.recording.sort_by_key(|row| row.time_ns);
        self.counters.sort_by_key(|row| row.time_ns);
        self.marks.sort_by_key(|row| row.time_ns);
        self.losses.sort_by_key(|row| row.time_ns);
        self.clock_joins.sort_by_key(|row| row.time_ns);
        last_of_each(&mut self.devices, |row| (row.process, row.device));
        last_of_each(&mut self.streams, |row| (row.process, row.device, row.context, row.stream));
        last_of_each(&mut self.communicators, |row| (row.process, row.communicator));
        last_of_each(&mut self.thread_counts, |row| (row.process, row.thread));
        last_of_each(&mut self.properties, |row| row.key);
    }
}

fn last_of_each<R, K: Ord>(rows: &mut Vec<R>, key: impl Fn(&R) -> K) {
    rows.reverse();
    rows.sort_by_key(&key);
    rows.dedup_by_key(|row| key(row));
}
