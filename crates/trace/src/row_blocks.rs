//! Reads a large table block by block, with only one block in memory.

use crate::error::{Damage, Problem};
use crate::planes::PlaneReader;
use crate::reader::TraceFile;
use crate::scan::IndexRow;
use crate::tables::{TracePart, TraceRow};
use std::marker::PhantomData;

/// The blocks of a large table, in the order in which they were written. Each block is a list of
/// rows, sorted as the writer sorted them. Blocks may overlap in time.
///
/// A block that can't be decoded is skipped and listed in [`Self::problems`].
#[derive(Debug)]
pub struct RowBlocks<'a, R> {
    file: &'a TraceFile,
    blocks: std::vec::IntoIter<IndexRow>,
    payload: Vec<u8>,
    planes: Option<PlaneReader>,
    /// Number of bytes that the remaining blocks may decode to. The budget prevents a small file
    /// from taking much memory.
    budget: u64,
    problems: Vec<Problem>,
    rows: PhantomData<R>,
}

impl TraceFile {
    /// Returns the rows of a large table, block by block; see [`RowBlocks`].
    pub fn blocks<R: TracePart>(&self) -> RowBlocks<'_, R> {
        RowBlocks::new(self, 0, u64::MAX)
    }

    /// Like [`Self::blocks`], but leaves out blocks that lie completely outside of these times.
    pub fn blocks_between<R: TracePart>(&self, from_ns: u64, to_ns: u64) -> RowBlocks<'_, R> {
        RowBlocks::new(self, from_ns, to_ns)
    }

    /// Returns all rows of a large table, sorted by time, and the problems in reading them.
    pub fn rows<R: TraceRow>(&self) -> (Vec<R>, Vec<Problem>) {
        let mut blocks = self.blocks::<R>();
        let mut rows = Vec::with_capacity(blocks.rows_left());
        for mut block in blocks.by_ref() {
            rows.append(&mut block);
        }
        rows.sort_by_key(R::time_ns);
        (rows, blocks.into_problems())
    }
}

impl<'a, R: TracePart> RowBlocks<'a, R> {
    pub(crate) fn new(file: &'a TraceFile, from_ns: u64, to_ns: u64) -> RowBlocks<'a, R> {
        let touches = |block: &&IndexRow| {
            block.header.table == R::TABLE
                && file.part_of(R::TABLE).is_none_or(|part| part.may_hold(&block.header))
                && block.header.last_ns >= from_ns
                && block.header.first_ns <= to_ns
        };
        let blocks: Vec<IndexRow> = file.row_blocks().iter().filter(touches).copied().collect();
        RowBlocks {
            file,
            blocks: blocks.into_iter(),
            payload: Vec::new(),
            planes: None,
            budget: file.source().rows_limit(),
            problems: Vec::new(),
            rows: PhantomData,
        }
    }

    /// Like [`Self::new`], but sorts the blocks by their beginning.
    pub(crate) fn sorted(file: &'a TraceFile, from_ns: u64, to_ns: u64) -> RowBlocks<'a, R> {
        let mut all = RowBlocks::new(file, from_ns, to_ns);
        let mut blocks: Vec<IndexRow> = all.blocks.collect();
        blocks.sort_by_key(|block| (block.header.first_ns, block.offset));
        all.blocks = blocks.into_iter();
        all
    }

    /// Returns the earliest time in the next block.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        Some(self.blocks.as_slice().first()?.header.first_ns)
    }

    /// Returns the number of rows in blocks that weren't read yet. The number comes from block
    /// headers, and a damaged file may state too many. So it is at most what fits into the memory
    /// that decoded blocks of the file may take.
    pub fn rows_left(&self) -> usize {
        let rows = self.blocks.as_slice().iter().map(|block| block.header.rows as usize);
        let most = self.file.source().memory_limit() / size_of::<R>().max(1) as u64;
        rows.sum::<usize>().min(most as usize)
    }

    /// Returns the parts that couldn't be read so far.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns the parts that couldn't be read.
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    fn read(&mut self, block: &IndexRow) -> Result<Vec<R>, Damage> {
        let left = self.budget.checked_sub(block.header.raw_len.into());
        self.budget = left.ok_or_else(|| {
            Damage::new("a block would fill more memory than its file's size allows")
        })?;
        let planes = match &mut self.planes {
            Some(planes) => planes,
            none => {
                none.insert(PlaneReader::new().map_err(|error| Damage::new(error.to_string()))?)
            }
        };
        self.file.source().rows(block, &mut self.payload, planes)
    }
}

impl<R: TracePart> Iterator for RowBlocks<'_, R> {
    type Item = Vec<R>;

    fn next(&mut self) -> Option<Vec<R>> {
        loop {
            let block = self.blocks.next()?;
            match self.read(&block) {
                Ok(rows) if self.file.part_of(R::TABLE).is_none() => return Some(rows),
                Ok(mut rows) => {
                    rows.retain(|row| {
                        row.began_ns().is_none_or(|ns| self.file.reads_rows(R::TABLE, ns))
                    });
                    return Some(rows);
                }
                Err(Damage(what)) => self.file.note(&mut self.problems, block.offset, what),
            }
        }
    }
}
