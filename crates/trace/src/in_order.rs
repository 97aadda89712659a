//! Reads a large table in order of time, although its blocks may overlap.

use crate::error::Problem;
use crate::reader::TraceFile;
use crate::row_blocks::RowBlocks;
use crate::tables::TraceRow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::vec::IntoIter;

/// Number of rows that are returned at once.
const BATCH_ROWS: usize = 512;

/// The rows of a large table, sorted by time, in batches. Among rows that begin together, the
/// longest comes first, so that enclosing rows precede what they enclose.
///
/// Blocks are merged. Memory contains only those blocks that overlap each other in time, not the
/// whole table, and each row is moved once.
#[derive(Debug)]
pub struct RowsInOrder<'a, R> {
    blocks: RowBlocks<'a, R>,
    /// The remaining rows of the blocks that have begun, each in order.
    runs: Vec<IntoIter<R>>,
    /// The first row of each run, with the run's index.
    heads: BinaryHeap<Reverse<(Key, usize)>>,
    from_ns: u64,
    to_ns: u64,
}

impl TraceFile {
    /// Returns the rows of a large table that overlap the time from `from_ns` to before `to_ns`, in
    /// order. The memory that this takes doesn't grow with the table.
    pub fn in_order<R: TraceRow>(&self, from_ns: u64, to_ns: u64) -> RowsInOrder<'_, R> {
        RowsInOrder::new(self, from_ns, to_ns)
    }
}

/// The beginning and the end of a row. Later ends come first.
type Key = (u64, Reverse<u64>);

fn key<R: TraceRow>(row: &R) -> Key {
    (row.time_ns(), Reverse(row.end_ns()))
}

impl<'a, R: TraceRow> RowsInOrder<'a, R> {
    pub(crate) fn new(file: &'a TraceFile, from_ns: u64, to_ns: u64) -> RowsInOrder<'a, R> {
        let blocks = RowBlocks::sorted(file, from_ns, to_ns);
        RowsInOrder { blocks, runs: Vec::new(), heads: BinaryHeap::new(), from_ns, to_ns }
    }

    /// Returns the parts that couldn't be read so far.
    pub fn problems(&self) -> &[Problem] {
        self.blocks.problems()
    }

    /// Reads the blocks that begin at or before `time_ns`.
    fn begin(&mut self, time_ns: u64) {
        while self.blocks.next_ns().is_some_and(|next_ns| next_ns <= time_ns) {
            let Some(mut rows) = self.blocks.next() else { return };
            rows.retain(|row| {
                let start_ns = row.time_ns();
                start_ns < self.to_ns && (row.end_ns() > self.from_ns || start_ns >= self.from_ns)
            });
            if !rows.is_sorted_by_key(key) {
                rows.sort_by_key(key);
            }
            if let Some(first) = rows.first().map(key) {
                self.heads.push(Reverse((first, self.runs.len())));
                self.runs.push(rows.into_iter());
            }
        }
    }

    /// Moves those rows of the first run into the batch that are earlier than all other runs' rows.
    fn take(&mut self, batch: &mut Vec<R>) {
        let Some(Reverse((_, run))) = self.heads.pop() else { return };
        let other = self.heads.peek().map(|Reverse(other)| *other);
        let unread_ns = self.blocks.next_ns();
        let is_next = |row: &&R| {
            let key = key(*row);
            other.is_none_or(|other| (key, run) < other)
                && unread_ns.is_none_or(|unread_ns| key.0 < unread_ns)
        };
        let rows = &mut self.runs[run];
        let room = BATCH_ROWS - batch.len();
        let count = rows.as_slice()[..rows.len().min(room)].iter().take_while(is_next).count();
        batch.extend(rows.by_ref().take(count));
        match rows.as_slice().first().map(key) {
            Some(first) => self.heads.push(Reverse((first, run))),
            // Free the memory of the run.
            None => *rows = Vec::new().into_iter(),
        }
    }
}

impl<R: TraceRow> Iterator for RowsInOrder<'_, R> {
    type Item = Vec<R>;

    fn next(&mut self) -> Option<Vec<R>> {
        let mut batch = Vec::with_capacity(BATCH_ROWS);
        while batch.len() < BATCH_ROWS {
            let head_ns = self.heads.peek().map(|Reverse(((time_ns, _), _))| *time_ns);
            let Some(until_ns) = head_ns.or(self.blocks.next_ns()) else { break };
            self.begin(until_ns);
            self.take(&mut batch);
        }
        (!batch.is_empty()).then_some(batch)
    }
}
