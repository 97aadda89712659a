//! Turns the hooks' records of calls on files, pipes and sockets into rows: calls of one thread on
//! one file that follow each other closely become one row.
//!
//! Rings are read one after the other, so a call may be read before its file's name. Rows therefore
//! wait for up to [`WAIT_NS`], and get their names then.
//!
//! A data set can have millions of files. Once 1,000 files of a directory have their names, further
//! ones are named together, by directory and extension.

mod names;
mod storage;
#[cfg(test)]
mod tests;

use crate::shared::clock::Clock;
use names::{MAX_FILES, Names};
use rustc_hash::{FxHashMap, FxHashSet};
use std::path::PathBuf;
use storage::StorageReads;
use tprof_trace::model::*;
use tprof_trace::{TraceError, TraceWriter};
use tprof_wire::io::{Call, NO_OFFSET, Named, Operation};

/// The longest time from the start of a row's first call to the start of its last, ns.
const LONGEST_NS: u64 = 10_000_000;
/// The time between two passes that write rows, ns. If the collector is killed, only the rows of
/// this time are lost.
const WAIT_NS: u64 = 100_000_000;
/// Rows with at least so many bytes are not joined.
const LARGE: u64 = 1 << 20;
/// So many rows are written before that time has passed.
const MAX_ROWS: usize = 65_536;

/// A record of a call, or of a file's name.
#[derive(Debug)]
pub enum FileNote {
    /// A file got its number, and its name is in these bytes.
    Named(u32, Named, Vec<u8>),
    /// A call returned.
    Call(Operation, Call),
}

/// Calls of a thread on a file that make one row.
#[derive(Debug)]
struct Sum {
    file: u32,
    row: FileCalls,
}

/// Where the next call on an open file begins if it isn't told otherwise.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    /// The offset of the open file; `None` if it is unknown.
    own: Option<u64>,
    /// The offset at which the last call ended.
    last_end: Option<u64>,
}

/// Calls of one image on files that aren't written to its trace file yet.
#[derive(Debug)]
pub struct FileWork {
    process: ProcessIndex,
    names: Names,
    positions: FxHashMap<u32, Position>,
    /// The rows that still grow.
    growing: FxHashMap<(ThreadIndex, u32, Operation), Sum>,
    /// The rows that don't grow any more, but have no name yet.
    done: Vec<Sum>,
    /// Numbers of files that were closed. Rows may still need their names.
    closed: Vec<u32>,
    storage: StorageReads,
    written_ns: u64,
    /// Number of calls whose rows could not be written.
    pub lost: u64,
}

impl FileWork {
    /// Returns the state of an image without calls, which the process `started_by` started in
    /// `working_directory`, and which may be a forked child of `parent`. Without `same_pids`, the
    /// image has other ids for its threads than the collector, which then can't read their counters.
    pub fn new(
        process: ProcessIndex,
        pid: u32,
        started_by: u32,
        redact: bool,
        same_pids: bool,
        working_directory: Option<PathBuf>,
        parent: Option<&FileWork>,
    ) -> FileWork {
        FileWork {
            process,
            names: Names::new(
                pid,
                started_by,
                redact,
                same_pids,
                working_directory,
                parent.map(|parent| &parent.names),
            ),
            positions: FxHashMap::default(),
            growing: FxHashMap::default(),
            done: Vec::new(),
            closed: Vec::new(),
            storage: StorageReads::new(pid, same_pids),
            written_ns: 0,
            lost: 0,
        }
    }

    /// Adds a record of a thread, which ended at `end_ns`.
    pub fn take(&mut self, note: FileNote, thread: (ThreadIndex, u32), end_ns: u64, clock: &Clock) {
        let (operation, call) = match note {
            FileNote::Named(file, named, name) => return self.names.named(file, named, &name),
            FileNote::Call(operation, call) => (operation, call),
        };
        self.storage.seen(thread);
        let bytes = match operation {
            Operation::Read | Operation::Write | Operation::Map => call.result.max(0) as u64,
            _ => 0,
        };
        let jumped = self.moved(operation, &call, bytes);
        match operation {
            Operation::Seek => return,
            Operation::Close => self.closed.push(call.file),
            _ => {}
        }
        let busy_ns = clock.duration_ns(call.ticks).min(end_ns);
        let start_ns = end_ns - busy_ns;
        let key = (thread.0, call.file, operation);
        if let Some(sum) = self.growing.get_mut(&key) {
            let row = &mut sum.row;
            let is_near = start_ns.saturating_sub(row.start_ns) <= LONGEST_NS;
            let is_alike = call.stack == 0 || row.stack == 0 || call.stack == row.stack;
            if is_near && is_alike {
                row.duration_ns = row.duration_ns.max(end_ns.saturating_sub(row.start_ns));
                row.calls += 1;
                row.failed += u64::from(call.result < 0);
                row.bytes = row.bytes.saturating_add(bytes);
                row.busy_ns = row.busy_ns.saturating_add(busy_ns);
                row.longest_ns = row.longest_ns.max(busy_ns);
                row.jumps += u64::from(jumped);
                row.stack = row.stack.max(call.stack);
                return;
            }
        }
        let row = FileCalls {
            start_ns,
            duration_ns: busy_ns,
            process: self.process,
            thread: thread.0,
            operation: operation_of(operation),
            calls: 1,
            failed: u64::from(call.result < 0),
            bytes,
            busy_ns,
            longest_ns: busy_ns,
            jumps: u64::from(jumped),
            stack: call.stack,
            ..FileCalls::default()
        };
        self.done.extend(self.growing.insert(key, Sum { file: call.file, row }));
    }

    /// Follows the offset of the call's file, and returns whether the call began elsewhere than the
    /// one before it ended.
    fn moved(&mut self, operation: Operation, call: &Call, bytes: u64) -> bool {
        if call.file == 0 || call.result < 0 {
            return false;
        }
        if self.positions.len() >= MAX_FILES && !self.positions.contains_key(&call.file) {
            return false;
        }
        let position = self.positions.entry(call.file).or_default();
        match operation {
            Operation::Open => *position = Position { own: Some(0), last_end: Some(0) },
            Operation::Seek => position.own = Some(call.result as u64),
            Operation::Close => {
                self.positions.remove(&call.file);
            }
            Operation::Read | Operation::Write => {
                let own = call.offset == NO_OFFSET;
                let begins = if own { position.own } else { Some(call.offset) };
                let end = begins.map(|begins| begins.saturating_add(bytes));
                let jumped = begins.zip(position.last_end).is_some_and(|(at, last)| at != last);
                position.last_end = end;
                if own {
                    position.own = end;
                }
                return jumped;
            }
            _ => {}
        }
        false
    }

    /// Makes the next [`FileWork::write`] write all rows.
    pub fn write_all_next(&mut self) {
        self.written_ns = 0;
    }

    /// Writes the rows that have waited long enough; with `last`, all.
    pub fn write(
        &mut self,
        now: u64,
        last: bool,
        writer: &mut TraceWriter,
    ) -> Result<(), TraceError> {
        let is_due = now.saturating_sub(self.written_ns) >= WAIT_NS
            || self.done.len() + self.growing.len() >= MAX_ROWS;
        if !is_due && !last {
            return Ok(());
        }
        self.written_ns = now;
        // The file systems of which the kernel counts what it reads from their storage.
        let mut counting = FxHashSet::default();
        let mut rows = Vec::with_capacity(self.done.len() + self.growing.len());
        for Sum { file, mut row } in self.done.drain(..).chain(self.growing.drain().map(|of| of.1))
        {
            let file = self.names.of(file, writer);
            (row.file, row.kind, row.file_system) = (file.name, file.kind, file.file_system);
            let is_of_socket =
                matches!(row.operation, FileOperation::Connect | FileOperation::Accept);
            if row.kind == FileKind::Unknown && is_of_socket {
                row.kind = FileKind::Socket;
            }
            if file.counts_reads {
                counting.insert(file.file_system);
            }
            rows.push(row);
        }
        for file in self.closed.drain(..) {
            self.names.forget(file);
        }
        let mut rows = joined(rows);
        self.storage.share(now, self.process, &mut rows, last, &counting);
        rows.sort_by_key(|row| row.start_ns);
        let calls: u64 = rows.iter().map(|row| row.calls).sum();
        let written = writer.write(&mut rows);
        if written.is_err() {
            self.lost += calls;
        }
        written
    }
}

/// Joins rows of files that have one name, as those of a large directory do. Rows with many bytes
/// stay apart, so that one can tell how much was read each time that a file was opened.
fn joined(mut rows: Vec<FileCalls>) -> Vec<FileCalls> {
    let what = |row: &FileCalls| (row.thread, row.operation, row.file, row.stack);
    rows.sort_by_key(|row| (what(row), row.start_ns));
    rows.dedup_by(|next, row| {
        let is_near = next.start_ns.saturating_sub(row.start_ns) <= LONGEST_NS;
        let is_large = row.bytes.max(next.bytes) >= LARGE;
        if what(next) != what(row) || !is_near || is_large {
            return false;
        }
        let end_ns = next.start_ns.saturating_add(next.duration_ns);
        row.duration_ns = row.duration_ns.max(end_ns.saturating_sub(row.start_ns));
        row.calls += next.calls;
        row.failed += next.failed;
        row.bytes = row.bytes.saturating_add(next.bytes);
        row.busy_ns = row.busy_ns.saturating_add(next.busy_ns);
        row.longest_ns = row.longest_ns.max(next.longest_ns);
        row.jumps += next.jumps;
        true
    });
    rows
}

fn operation_of(operation: Operation) -> FileOperation {
    match operation {
        Operation::Open => FileOperation::Open,
        Operation::Read | Operation::Seek => FileOperation::Read,
        Operation::Write => FileOperation::Write,
        Operation::Sync => FileOperation::Sync,
        Operation::Map => FileOperation::Map,
        Operation::Connect => FileOperation::Connect,
        Operation::Close => FileOperation::Close,
        Operation::Accept => FileOperation::Accept,
    }
}
