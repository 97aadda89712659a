//! Reads mapping events in order of time, with only a few blocks in memory.

use crate::error::{Damage, Problem};
use crate::model::MapEvent;
use crate::planes::PlaneReader;
use crate::reader::TraceFile;
use crate::scan::IndexRow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Mapping events of a file in time order; see [`TraceFile::map_events`].
///
/// Blocks may overlap in time, so all blocks that begin before the next event must be open.
#[derive(Debug)]
pub struct MapEvents<'a> {
    file: &'a TraceFile,
    /// Blocks that weren't opened yet, the earliest one last.
    blocks: Vec<IndexRow>,
    /// For each block opened so far: its remaining events, and its decoded size from its header.
    open: Vec<(std::vec::IntoIter<MapEvent>, u64)>,
    /// Decoded size of all open blocks, bytes.
    decoded: u64,
    /// For each open block: the time of its first remaining event, and the block's number.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    planes: Option<PlaneReader>,
    problems: Vec<Problem>,
}

impl TraceFile {
    /// Returns the mapping events of all processes, in order of time.
    pub fn map_events(&self) -> MapEvents<'_> {
        MapEvents::new(self)
    }
}

impl<'a> MapEvents<'a> {
    pub(crate) fn new(file: &'a TraceFile) -> MapEvents<'a> {
        let mut blocks = file.map_blocks().to_vec();
        blocks.sort_by_key(|block| block.header.first_ns);
        blocks.reverse();
        MapEvents {
            file,
            blocks,
            open: Vec::new(),
            decoded: 0,
            heads: BinaryHeap::new(),
            planes: None,
            problems: Vec::new(),
        }
    }

    /// Returns the blocks that were skipped so far because they couldn't be decoded.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    fn read(&mut self, block: &IndexRow) -> Result<Vec<MapEvent>, Damage> {
        if u64::from(block.header.raw_len) > self.file.source().memory_limit() - self.decoded {
            return Err(Damage::new("a block would fill more memory than its file's size allows"));
        }
        let planes = match &mut self.planes {
            Some(planes) => planes,
            none => {
                none.insert(PlaneReader::new().map_err(|error| Damage::new(error.to_string()))?)
            }
        };
        let mut rows: Vec<MapEvent> = self.file.source().rows(block, &mut Vec::new(), planes)?;
        rows.retain(|row| self.file.reads(row.time_ns));
        rows.sort_by_key(|row| row.time_ns);
        Ok(rows)
    }

    /// Opens every block that may contain the earliest event.
    fn open(&mut self) {
        while let Some(block) = self.blocks.last().copied() {
            let earliest = self.heads.peek().map_or(u64::MAX, |Reverse((time, _))| *time);
            if block.header.first_ns > earliest {
                break;
            }
            self.blocks.pop();
            match self.read(&block) {
                Ok(rows) => {
                    let rows = rows.into_iter();
                    if let Some(first) = rows.as_slice().first() {
                        self.heads.push(Reverse((first.time_ns, self.open.len())));
                    }
                    let bytes = if rows.len() == 0 { 0 } else { block.header.raw_len.into() };
                    self.decoded += bytes;
                    self.open.push((rows, bytes));
                }
                Err(Damage(what)) => self.file.note(&mut self.problems, block.offset, what),
            }
        }
    }
}

impl Iterator for MapEvents<'_> {
    type Item = MapEvent;

    fn next(&mut self) -> Option<MapEvent> {
        self.open();
        let Reverse((_, index)) = self.heads.pop()?;
        let (rows, bytes) = &mut self.open[index];
        let event = rows.next();
        match rows.as_slice().first() {
            Some(next) => self.heads.push(Reverse((next.time_ns, index))),
            // Free the block's memory. Its number remains, so that the order of equal times stays
            // the same.
            None => {
                *rows = Vec::new().into_iter();
                self.decoded -= *bytes;
            }
        }
        event
    }
}
