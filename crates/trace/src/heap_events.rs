//! Reads heap events in order of time. It decodes one block of each process at a time, merges the
//! processes' events by time, and restores the ordinals of allocations.

use crate::columns_read::Columns;
use crate::error::{Damage, Problem};
use crate::heap_block::column;
use crate::model::*;
use crate::planes::PlaneReader;
use crate::reader::TraceFile;
use crate::scan::IndexRow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Maximum number of buffers that are kept for the next blocks.
const MAX_SPARE: usize = 4;

/// Heap events of a file in time order; see [`TraceFile::heap_events`].
#[derive(Debug)]
pub struct HeapEvents<'a> {
    file: &'a TraceFile,
    /// Whether some events are left out ([`TraceFile::read_only`]).
    is_part: bool,
    streams: Vec<ProcessEvents>,
    /// The streams other than the current one, by the time of their next event.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    current: usize,
    /// The time up to which the current stream has the earliest event.
    until: u64,
    decoder: Option<Decoder>,
    /// Decoded size of all blocks in memory, from their headers.
    decoded: u64,
    /// Buffers of blocks that have been read completely.
    spare: Vec<Block>,
    problems: Vec<Problem>,
}

/// The decoder that all streams of an iterator share.
#[derive(Debug)]
struct Decoder {
    planes: PlaneReader,
    payload: Vec<u8>,
}

impl Decoder {
    fn decode(
        &mut self,
        file: &TraceFile,
        next: &IndexRow,
        limit: u64,
        block: &mut Block,
    ) -> Result<(), Damage> {
        if u64::from(next.header.raw_len) > limit {
            return Err(Damage::new("a block would fill more memory than its file's size allows"));
        }
        file.source().payload(next, &mut self.payload)?;
        block.decode(&mut Columns::parse(&self.payload, &next.header, &mut self.planes)?)
    }
}

/// The events of one process, which is one of the streams that are merged.
#[derive(Debug)]
struct ProcessEvents {
    process: ProcessIndex,
    /// Blocks that weren't read yet, the next one last.
    blocks: Vec<IndexRow>,
    block: Block,
    /// Size of the decoded block, from its header; 0 if there is none.
    decoded: u64,
    next_ordinal: u64,
    /// Ranges of ordinals of allocations that couldn't be read: the first, and the one past the
    /// last.
    gaps: Vec<(u64, u64)>,
}

impl TraceFile {
    /// Returns the heap events of all processes, in order of time. The events of one process stay
    /// in the order in which they were recorded. In a part of the file ([`Self::read_only`]), a free
    /// may belong to an allocation before the part.
    pub fn heap_events(&self) -> HeapEvents<'_> {
        HeapEvents::new(self, None)
    }

    /// Returns the heap events of one process.
    pub fn heap_events_of(&self, process: ProcessIndex) -> HeapEvents<'_> {
        HeapEvents::new(self, Some(process))
    }
}

/// A decoded block, and how far it has been read. [`Block::decode`] checks that the columns agree
/// with each other, and `Block::event` relies on it.
#[derive(Debug, Default)]
struct Block {
    times: Vec<u64>,
    is_free: Vec<u8>,
    is_realloc: Vec<u8>,
    changes: Vec<u8>,
    threads: Vec<u32>,
    sizes: Vec<u64>,
    stacks: Vec<u32>,
    distances: Vec<u64>,
    event: usize,
    alloc: usize,
    run: usize,
}

fn bit(bits: &[u8], index: usize) -> bool {
    bits[index / 8] >> (index % 8) & 1 != 0
}

impl Block {
    fn decode(&mut self, columns: &mut Columns<'_>) -> Result<(), Damage> {
        let events = columns.rows;
        (self.event, self.alloc, self.run) = (0, 0, 0);
        columns.integers_into(column::TIME, &mut self.times)?;
        columns.packed_into(column::IS_FREE, &mut self.is_free)?;
        columns.packed_into(column::IS_REALLOC, &mut self.is_realloc)?;
        columns.packed_into(column::THREAD_CHANGES, &mut self.changes)?;
        columns.narrow_into(column::THREAD, &mut self.threads)?;
        columns.integers_into(column::SIZE, &mut self.sizes)?;
        columns.narrow_into(column::STACK, &mut self.stacks)?;
        columns.integers_into(column::DISTANCE, &mut self.distances)?;
        let set = |bits: &[u8]| {
            let beyond = bits.last().map_or(0, |last| match events % 8 {
                0 => 0,
                used => (last >> used).count_ones(),
            });
            (bits.iter().map(|byte| byte.count_ones()).sum::<u32>() - beyond) as usize
        };
        let frees = set(&self.is_free);
        let agree = self.times.len() == events
            && self.distances.len() == frees
            && self.sizes.len() == events - frees
            && self.stacks.len() == events - frees
            && self.threads.len() == 1 + set(&self.changes);
        match agree {
            true => Ok(()),
            false => Err(Damage::new("the columns of a block of heap events do not agree")),
        }
    }

    fn is_over(&self) -> bool {
        self.event >= self.times.len()
    }
}

impl ProcessEvents {
    /// Returns the time of the next event, or a lower bound if its block isn't decoded yet.
    fn next_ns(&self) -> Option<u64> {
        match self.block.is_over() {
            false => Some(self.block.times[self.block.event]),
            true => self.blocks.last().map(|block| block.header.first_ns),
        }
    }

    /// Decodes the next block into the buffers of an earlier one. Fails if it is larger than
    /// `limit` bytes.
    fn open(
        &mut self,
        file: &TraceFile,
        decoder: &mut Decoder,
        buffers: Block,
        limit: u64,
    ) -> Result<(), (u64, Damage)> {
        let Some(next) = self.blocks.pop() else {
            return Ok(());
        };
        self.block = buffers;
        if let Err(damage) = decoder.decode(file, &next, limit, &mut self.block) {
            self.block = Block::default();
            return Err((next.offset, damage));
        }
        self.decoded = next.header.raw_len.into();
        if next.header.base > self.next_ordinal {
            self.gaps.push((self.next_ordinal, next.header.base));
        }
        self.next_ordinal = next.header.base;
        Ok(())
    }

    /// Returns the ordinal of the allocation that is `distance` before the next one; `None` if that
    /// allocation couldn't be read.
    #[inline(always)]
    fn freed(&self, distance: u64) -> Option<u64> {
        if distance == 0 {
            return None;
        }
        let ordinal = self.next_ordinal.checked_sub(distance)?;
        if !self.gaps.is_empty() && self.is_lost(ordinal) {
            return None;
        }
        Some(ordinal)
    }

    #[cold]
    fn is_lost(&self, ordinal: u64) -> bool {
        self.gaps.iter().any(|(from, to)| (*from..*to).contains(&ordinal))
    }

    #[inline(always)]
    fn event(&mut self) -> HeapEvent {
        let block = &mut self.block;
        let at = block.event;
        block.event += 1;
        block.run += usize::from(bit(&block.changes, at));
        let realloc = bit(&block.is_realloc, at);
        let what = if bit(&block.is_free, at) {
            let distance = block.distances[at - block.alloc];
            HeapChange::Free { ordinal: self.freed(distance), realloc }
        } else {
            let row = block.alloc;
            block.alloc += 1;
            let ordinal = self.next_ordinal;
            self.next_ordinal = ordinal.wrapping_add(1);
            HeapChange::Alloc { ordinal, size: block.sizes[row], stack: block.stacks[row], realloc }
        };
        HeapEvent {
            time_ns: self.block.times[at],
            process: self.process,
            thread: self.block.threads[self.block.run],
            what,
        }
    }
}

impl<'a> HeapEvents<'a> {
    pub(crate) fn new(file: &'a TraceFile, only: Option<ProcessIndex>) -> HeapEvents<'a> {
        let mut by_process: BTreeMap<ProcessIndex, Vec<IndexRow>> = BTreeMap::new();
        for block in file.heap_blocks().iter().rev() {
            if only.is_none_or(|process| process == block.header.process) {
                by_process.entry(block.header.process).or_default().push(*block);
            }
        }
        let streams: Vec<ProcessEvents> = by_process
            .into_iter()
            .map(|(process, blocks)| ProcessEvents {
                process,
                blocks,
                block: Block::default(),
                decoded: 0,
                next_ordinal: 0,
                gaps: Vec::new(),
            })
            .collect();
        let waiting = (0..streams.len())
            .filter_map(|index| streams[index].next_ns().map(|time| Reverse((time, index))))
            .collect();
        let mut problems = Vec::new();
        let decoder = match PlaneReader::new() {
            Ok(planes) => Some(Decoder { planes, payload: Vec::new() }),
            Err(error) => {
                file.note(&mut problems, 0, format!("heap events cannot be decoded: {error}"));
                None
            }
        };
        // No stream has the index `streams.len()`, so the first call searches for a stream.
        HeapEvents {
            file,
            is_part: file.part().is_some(),
            waiting,
            current: streams.len(),
            streams,
            until: 0,
            decoder,
            decoded: 0,
            spare: Vec::new(),
            problems,
        }
    }

    /// Returns the blocks that were skipped so far because they couldn't be decoded. A free of an
    /// allocation in such a block has no ordinal.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Makes the stream with the earliest event the current one.
    #[cold]
    #[inline(never)]
    fn turn(&mut self) -> Option<()> {
        let decoder = self.decoder.as_mut()?;
        if let Some(stream) = self.streams.get_mut(self.current) {
            if let Some(time) = stream.next_ns() {
                self.waiting.push(Reverse((time, self.current)));
            }
            if stream.block.is_over() {
                // Other processes may need the memory before this one continues.
                self.decoded -= std::mem::take(&mut stream.decoded);
                let buffers = std::mem::take(&mut stream.block);
                if self.spare.len() < MAX_SPARE {
                    self.spare.push(buffers);
                }
            }
        }
        self.current = self.streams.len();
        loop {
            let Reverse((_, index)) = self.waiting.pop()?;
            let stream = &mut self.streams[index];
            if stream.block.is_over() {
                self.decoded -= std::mem::take(&mut stream.decoded);
                let limit = self.file.source().memory_limit() - self.decoded;
                let buffers = self.spare.pop().unwrap_or_default();
                if let Err((offset, Damage(what))) = stream.open(self.file, decoder, buffers, limit)
                {
                    self.file.note(&mut self.problems, offset, what);
                }
                self.decoded += stream.decoded;
                if let Some(time) = stream.next_ns() {
                    self.waiting.push(Reverse((time, index)));
                }
                continue;
            }
            self.current = index;
            self.until = self.waiting.peek().map_or(u64::MAX, |Reverse((time, _))| *time);
            return Some(());
        }
    }
}

impl Iterator for HeapEvents<'_> {
    type Item = HeapEvent;

    #[inline]
    fn next(&mut self) -> Option<HeapEvent> {
        loop {
            if let Some(stream) = self.streams.get_mut(self.current)
                && !stream.block.is_over()
                && stream.block.times[stream.block.event] <= self.until
            {
                let event = stream.event();
                if self.is_part && !self.file.reads(event.time_ns) {
                    continue;
                }
                return Some(event);
            }
            self.turn()?;
        }
    }
}
