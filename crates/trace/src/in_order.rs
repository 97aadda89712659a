//! A large table in order of time, although its blocks may overlap.

use crate::error::Problem;
use crate::reader::TraceFile;
use crate::row_blocks::RowBlocks;
use crate::tables::TraceRow;
use std::cmp::Reverse;

/// Rows of a large table, sorted by time, in batches; of rows that begin
/// together the longest comes first, so that what encloses precedes.
///
/// Memory holds the blocks that overlap each other in time, not the table.
#[derive(Debug)]
pub struct RowsInOrder<'a, R> {
    blocks: RowBlocks<'a, R>,
    /// Sorted rows that later blocks may still precede.
    held: Vec<R>,
    from_ns: u64,
    to_ns: u64,
}

impl<'a, R: TraceRow> RowsInOrder<'a, R> {
    pub(crate) fn new(file: &'a TraceFile, from_ns: u64, to_ns: u64) -> RowsInOrder<'a, R> {
        let blocks = RowBlocks::sorted(file, from_ns, to_ns);
        RowsInOrder { blocks, held: Vec::new(), from_ns, to_ns }
    }

    /// What could not be read so far.
    pub fn problems(&self) -> &[Problem] {
        self.blocks.problems()
    }
}

impl<R: TraceRow> Iterator for RowsInOrder<'_, R> {
    type Item = Vec<R>;

    fn next(&mut self) -> Option<Vec<R>> {
        loop {
            let read = self.blocks.next();
            let last = read.is_none();
            let (from_ns, to_ns) = (self.from_ns, self.to_ns);
            let wanted = |row: &R| {
                let start_ns = row.time_ns();
                start_ns < to_ns && (row.end_ns() > from_ns || start_ns >= from_ns)
            };
            self.held.extend(read.into_iter().flatten().filter(wanted));
            let key = |row: &R| (row.time_ns(), Reverse(row.end_ns()));
            if !self.held.is_sorted_by_key(key) {
                self.held.sort_by_key(key);
            }
            let ready = match self.blocks.next_ns() {
                Some(next_ns) => self.held.partition_point(|row| row.time_ns() < next_ns),
                None => self.held.len(),
            };
            if ready > 0 {
                let rest = self.held.split_off(ready);
                return Some(std::mem::replace(&mut self.held, rest));
            }
            if last {
                return None;
            }
        }
    }
}
