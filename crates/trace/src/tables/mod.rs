//! Assigns ids to the tables, and encodes rows as columns.
//!
//! Ids of tables and columns are permanent: if a field is no longer written, its id isn't used
//! again. A reader skips ids that it doesn't know. `docs/format.md` lists the ids that are reserved
//! for later tables.

mod caching_allocator;
mod device;
mod field;
mod file_calls;
mod history;
mod measured;
mod span;
mod stack;

pub(crate) use span::SpanTitle;

use crate::columns::BlockWriter;
use crate::columns_read::Columns;
use crate::error::Damage;
use crate::model::*;
use crate::watch::RowWatcher;

/// Numbers of the tables.
pub(crate) mod table {
    pub const NAMES: u16 = 1;
    pub const PROCESSES: u16 = 2;
    pub const PROCESS_ENDS: u16 = 3;
    pub const THREADS: u16 = 4;
    pub const THREAD_NAMES: u16 = 5;
    pub const THREAD_ENDS: u16 = 6;
    pub const MODULES: u16 = 7;
    pub const STACKS: u16 = 8;
    pub const SYMBOLS: u16 = 9;
    pub const COUNTERS: u16 = 10;
    pub const MARKS: u16 = 11;
    pub const LOSSES: u16 = 12;
    pub const PROPERTIES: u16 = 13;
    pub const HEAP_EVENTS: u16 = 16;
    pub const HEAP_TOTALS: u16 = 17;
    pub const MAP_EVENTS: u16 = 18;
    pub const DEVICE_ALLOCATIONS: u16 = 19;
    pub const RECORDING_TOTALS: u16 = 21;
    pub const SPANS: u16 = 32;
    pub const KERNELS: u16 = 33;
    pub const COPIES: u16 = 34;
    pub const SYNCHRONIZATIONS: u16 = 35;
    pub const COLLECTIVES: u16 = 36;
    pub const SAMPLES: u16 = 37;
    pub const DEVICE_SPANS: u16 = 38;
    pub const DEVICES: u16 = 39;
    pub const COMMUNICATORS: u16 = 40;
    pub const CLOCK_JOINS: u16 = 41;
    pub const FILE_CALLS: u16 = 42;
    pub const STREAMS: u16 = 43;
    pub const FLOW_POINTS: u16 = 44;
    pub const THREAD_COUNTS: u16 = 45;
    pub const EXTERNAL_IDS: u16 = 46;
    pub const EVENT_SAMPLES: u16 = 47;
    pub const KERNEL_STALLS: u16 = 48;
    pub const CHANNEL_WORK: u16 = 50;
    pub const CONNECTIONS: u16 = 51;
    pub const ALLOCATOR_SEGMENTS: u16 = 54;
    pub const ALLOCATOR_BLOCKS: u16 = 55;
    pub const ALLOCATOR_EVENTS: u16 = 56;
    pub const HISTORY: u16 = 57;
    pub const INDEX: u16 = 254;
    pub const END: u16 = 255;

    /// Whether readers decode a table on demand, and not when they open the file.
    pub fn is_large(table: u16) -> bool {
        matches!(
            table,
            DEVICE_ALLOCATIONS
                | SPANS
                | KERNELS
                | COPIES
                | SYNCHRONIZATIONS
                | COLLECTIVES
                | CHANNEL_WORK
                | CONNECTIONS
                | SAMPLES
                | EVENT_SAMPLES
                | DEVICE_SPANS
                | FLOW_POINTS
                | EXTERNAL_IDS
                | ALLOCATOR_SEGMENTS
                | ALLOCATOR_BLOCKS
                | ALLOCATOR_EVENTS
                | HISTORY
                | FILE_CALLS
                | KERNEL_STALLS
        )
    }
}

/// A row of a large table, which is written and read block by block. The trait is sealed: only rows
/// of the model implement it.
#[expect(private_bounds)]
pub trait TraceRow: Row {
    /// Returns how many of these rows are CPU samples, as [`crate::Recorded`] defines them.
    fn cpu_samples(rows: &[Self]) -> u64 {
        let _ = rows;
        0
    }

    /// Shows the rows to a watcher, if it wants rows of this table.
    fn show(rows: &[Self], watcher: &mut dyn RowWatcher) {
        let _ = (rows, watcher);
    }
}

impl TraceRow for DeviceAllocation {}
impl TraceRow for Span {
    fn show(rows: &[Span], watcher: &mut dyn RowWatcher) {
        watcher.spans(rows);
    }
}
impl TraceRow for Kernel {
    fn show(rows: &[Kernel], watcher: &mut dyn RowWatcher) {
        watcher.kernels(rows);
    }
}
impl TraceRow for MemoryCopy {
    fn show(rows: &[MemoryCopy], watcher: &mut dyn RowWatcher) {
        watcher.copies(rows);
    }
}
impl TraceRow for Synchronization {}
impl TraceRow for Collective {
    fn show(rows: &[Collective], watcher: &mut dyn RowWatcher) {
        watcher.collectives(rows);
    }
}
impl TraceRow for ChannelWork {}
impl TraceRow for Connection {}
impl TraceRow for Sample {
    fn cpu_samples(rows: &[Sample]) -> u64 {
        rows.iter().filter(|row| row.state.is_cpu_sample(row.stack)).count() as u64
    }
}
impl TraceRow for EventSample {}
impl TraceRow for DeviceSpan {}
impl TraceRow for FlowPoint {}
impl TraceRow for ExternalId {}
impl TraceRow for AllocatorSegment {}
impl TraceRow for AllocatorBlock {}
impl TraceRow for AllocatorEvent {}
impl TraceRow for HistoryRow {}
impl TraceRow for FileCalls {}
impl TraceRow for KernelStall {}

/// A row of a large table, or some of its columns. A reader decodes only the columns that it
/// needs. Sealed, like [`TraceRow`].
#[expect(private_bounds)]
pub trait TracePart: Part {}

impl<R: TraceRow> TracePart for R {}
impl TracePart for SpanOutline {}
impl TracePart for NamedSpan {}
impl TracePart for SequencedSpan {}
impl TracePart for CallStack {}
impl TracePart for CallStatus {}
impl TracePart for SampleOutline {}
impl TracePart for SampleMoment {}
impl TracePart for KernelOutline {}
impl TracePart for KernelShape {}

/// Some columns of a table that are decoded together.
pub(crate) trait Part: Sized {
    /// Number of the table.
    const TABLE: u16;
    /// Returns the time when the row began, if it has one and the column is read.
    fn began_ns(&self) -> Option<u64>;
    /// Reads the columns of a block.
    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage>;
}

impl<R: Row> Part for R {
    const TABLE: u16 = <R as Row>::TABLE;

    fn began_ns(&self) -> Option<u64> {
        Some(self.time_ns()).filter(|time_ns| *time_ns > 0)
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        <R as Row>::read(columns)
    }
}

/// A row of any table, whose columns are all written and read.
pub(crate) trait Row: Sized {
    /// Number of the table.
    const TABLE: u16;
    /// Returns the row's time; 0 if it has none.
    fn time_ns(&self) -> u64 {
        0
    }
    /// Returns the time when the row ended. For an instant, this is the row's time.
    fn end_ns(&self) -> u64 {
        self.time_ns()
    }
    /// Returns the number of values that the row adds to its longest column. The writer begins a
    /// new block when the sum of these numbers reaches a limit.
    fn weight(&self) -> usize {
        1
    }
    /// Writes rows as columns.
    fn write(rows: &[Self], block: &mut BlockWriter<'_>);
    /// Reads the rows of a block.
    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage>;
}

/// An interned string with its id.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NameRow {
    pub id: u32,
    pub text: String,
}

/// The end of a process image.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProcessEndRow {
    pub process: ProcessIndex,
    pub end_ns: u64,
    pub end: ProcessEnd,
}

/// A thread's name, valid from a time on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ThreadNameRow {
    pub thread: ThreadIndex,
    pub time_ns: u64,
    pub name: NameId,
}

/// The end of a thread.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ThreadEndRow {
    pub thread: ThreadIndex,
    pub end_ns: u64,
}

pub(crate) fn rows<T>(columns: &Columns<'_>, row: impl FnMut(usize) -> T) -> Vec<T> {
    (0..columns.rows).map(row).collect()
}

pub(crate) fn narrow(value: Option<u64>) -> Option<u32> {
    value.and_then(|value| u32::try_from(value).ok())
}

impl Row for NameRow {
    const TABLE: u16 = table::NAMES;

    fn weight(&self) -> usize {
        1 + self.text.len()
    }

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.time(1, rows, |r| r.id.into());
        block.text(2, rows, |r| &r.text);
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let id = columns.uint(1)?;
        let text = columns.text(2)?;
        Ok(id.into_iter().zip(text).map(|(id, text)| NameRow { id: id as u32, text }).collect())
    }
}

impl Row for Process {
    const TABLE: u16 = table::PROCESSES;

    fn time_ns(&self) -> u64 {
        self.start_ns
    }

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.uint(1, rows, |r| r.process.into());
        block.uint(2, rows, |r| r.pid.into());
        block.uint(3, rows, |r| r.parent.into());
        block.option(4, rows, |r| r.rank.map(u64::from));
        block.uint(5, rows, |r| r.command.0.into());
        block.uint(6, rows, |r| r.exe.0.into());
        block.time(7, rows, |r| r.start_ns);
        block.uint(8, rows, |r| match r.memory {
            MemoryRecording::Off => 0,
            MemoryRecording::Sampled { .. } => 1,
            MemoryRecording::Exact => 2,
        });
        block.uint(9, rows, |r| match r.memory {
            MemoryRecording::Sampled { interval } => interval,
            _ => 0,
        });
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (process, pid, parent) = (columns.narrow(1)?, columns.narrow(2)?, columns.narrow(3)?);
        let rank = columns.option(4)?;
        let (command, exe) = (columns.narrow(5)?, columns.narrow(6)?);
        let start_ns = columns.uint(7)?;
        let (memory, interval) = (columns.uint(8)?, columns.uint(9)?);
        Ok(rows(columns, |i| Process {
            process: process[i],
            pid: pid[i],
            parent: parent[i],
            rank: narrow(rank[i]),
            command: NameId(command[i]),
            exe: NameId(exe[i]),
            start_ns: start_ns[i],
            memory: match memory[i] {
                1 => MemoryRecording::Sampled { interval: interval[i] },
                2 => MemoryRecording::Exact,
                _ => MemoryRecording::Off,
            },
        }))
    }
}

impl Row for ProcessEndRow {
    const TABLE: u16 = table::PROCESS_ENDS;

    fn time_ns(&self) -> u64 {
        self.end_ns
    }

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.uint(1, rows, |r| r.process.into());
        block.time(2, rows, |r| r.end_ns);
        block.uint(3, rows, |r| match r.end {
            ProcessEnd::Unknown => 0,
            ProcessEnd::Exited(_) => 1,
            ProcessEnd::Signal(_) => 2,
            ProcessEnd::Exec => 3,
        });
        block.uint(4, rows, |r| match r.end {
            ProcessEnd::Exited(value) | ProcessEnd::Signal(value) => (value as u32).into(),
            _ => 0,
        });
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (process, end_ns) = (columns.narrow(1)?, columns.uint(2)?);
        let (kind, value) = (columns.uint(3)?, columns.narrow(4)?);
        Ok(rows(columns, |i| ProcessEndRow {
            process: process[i],
            end_ns: end_ns[i],
            end: match kind[i] {
                1 => ProcessEnd::Exited(value[i] as i32),
                2 => ProcessEnd::Signal(value[i] as i32),
                3 => ProcessEnd::Exec,
                _ => ProcessEnd::Unknown,
            },
        }))
    }
}

impl Row for Thread {
    const TABLE: u16 = table::THREADS;

    fn time_ns(&self) -> u64 {
        self.start_ns
    }

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.uint(1, rows, |r| r.thread.into());
        block.uint(2, rows, |r| r.process.into());
        block.uint(3, rows, |r| r.tid.into());
        block.time(4, rows, |r| r.start_ns);
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (thread, process, tid) = (columns.narrow(1)?, columns.narrow(2)?, columns.narrow(3)?);
        let start_ns = columns.uint(4)?;
        Ok(rows(columns, |i| Thread {
            thread: thread[i],
            process: process[i],
            tid: tid[i],
            start_ns: start_ns[i],
        }))
    }
}

impl Row for ThreadNameRow {
    const TABLE: u16 = table::THREAD_NAMES;

    fn time_ns(&self) -> u64 {
        self.time_ns
    }

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.uint(1, rows, |r| r.thread.into());
        block.time(2, rows, |r| r.time_ns);
        block.uint(3, rows, |r| r.name.0.into());
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (thread, time_ns, name) = (columns.narrow(1)?, columns.uint(2)?, columns.narrow(3)?);
        Ok(rows(columns, |i| ThreadNameRow {
            thread: thread[i],
            time_ns: time_ns[i],
            name: NameId(name[i]),
        }))
    }
}

impl Row for ThreadEndRow {
    const TABLE: u16 = table::THREAD_ENDS;

    fn time_ns(&self) -> u64 {
        self.end_ns
    }

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.uint(1, rows, |r| r.thread.into());
        block.time(2, rows, |r| r.end_ns);
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (thread, end_ns) = (columns.narrow(1)?, columns.uint(2)?);
        Ok(rows(columns, |i| ThreadEndRow { thread: thread[i], end_ns: end_ns[i] }))
    }
}

impl Row for Module {
    const TABLE: u16 = table::MODULES;

    fn time_ns(&self) -> u64 {
        self.time_ns
    }

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.uint(1, rows, |r| r.process.into());
        block.time(2, rows, |r| r.start);
        block.time(3, rows, |r| r.end);
        block.time(4, rows, |r| r.bias);
        block.uint(5, rows, |r| r.path.0.into());
        block.uint(6, rows, |r| r.build_id.0.into());
        block.time(7, rows, |r| r.time_ns);
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let process = columns.narrow(1)?;
        let (start, end, bias) = (columns.uint(2)?, columns.uint(3)?, columns.uint(4)?);
        let (path, build_id) = (columns.narrow(5)?, columns.narrow(6)?);
        let time_ns = columns.uint(7)?;
        Ok(rows(columns, |i| Module {
            process: process[i],
            start: start[i],
            end: end[i],
            bias: bias[i],
            path: NameId(path[i]),
            build_id: NameId(build_id[i]),
            time_ns: time_ns[i],
        }))
    }
}

impl Row for Symbol {
    const TABLE: u16 = table::SYMBOLS;

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.uint(1, rows, |r| r.process.into());
        block.time(2, rows, |r| r.address);
        block.uint(3, rows, |r| r.depth.into());
        block.uint(4, rows, |r| r.function.0.into());
        block.uint(5, rows, |r| r.file.0.into());
        block.uint(6, rows, |r| r.line.into());
        block.uint(7, rows, |r| r.module.0.into());
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (process, address, depth) = (columns.narrow(1)?, columns.uint(2)?, columns.uint(3)?);
        let (function, file) = (columns.narrow(4)?, columns.narrow(5)?);
        let (line, module) = (columns.narrow(6)?, columns.narrow(7)?);
        Ok(rows(columns, |i| Symbol {
            process: process[i],
            address: address[i],
            depth: depth[i] as u16,
            function: NameId(function[i]),
            file: NameId(file[i]),
            line: line[i],
            module: NameId(module[i]),
        }))
    }
}
