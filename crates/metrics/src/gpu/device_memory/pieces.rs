//! Finds what was free within a caching allocator's segments when a request failed: in all, and in
//! the largest piece.

use std::collections::{BTreeMap, BTreeSet};

use tprof_trace::model::{Allocator, DeviceAllocation, ProcessIndex};

use super::errors::OutOfMemory;
use super::held_at::is_taken;

/// At most this many failed requests of a rank get their free pieces: the last ones.
const MOST_REQUESTS: usize = 256;

/// What was free within segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreePieces {
    /// Bytes of all pieces.
    pub bytes: u64,
    /// Bytes of the largest piece.
    pub largest: u64,
}

/// Whether a failed request would have fit into what was free within segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Less was free.
    No,
    /// As much was free, but in pieces that are too small.
    InPieces,
    /// One piece was large enough, but not usable: it belonged to another stream or pool.
    InOnePiece,
}

impl Fit {
    /// The words that reports print.
    pub fn words(self) -> &'static str {
        match self {
            Fit::No => "no",
            Fit::InPieces => "in pieces",
            Fit::InOnePiece => "in one piece",
        }
    }
}

impl FreePieces {
    /// Whether these bytes would have fit.
    pub fn fit(&self, asked: u64) -> Fit {
        match () {
            () if self.largest >= asked => Fit::InOnePiece,
            () if self.bytes >= asked => Fit::InPieces,
            () => Fit::No,
        }
    }
}

/// A process and its device, and an address there.
type Place = (ProcessIndex, Option<u32>, u64);

/// Segments and blocks that are held at a moment, with their bytes.
#[derive(Default)]
struct Held {
    segments: BTreeMap<Place, u64>,
    /// Segments in which a block has lain. The others may be the program's own.
    used: BTreeSet<Place>,
    blocks: BTreeMap<Place, u64>,
    /// Whether a block lay in no known segment.
    is_incomplete: BTreeSet<(ProcessIndex, Option<u32>)>,
}

/// Adds the free pieces to failed requests, which must be in order of time like `rows`. They stay
/// unknown where the recorded segments aren't all that the allocator held.
pub(super) fn add(rows: &[DeviceAllocation], errors: &mut [OutOfMemory]) {
    let mut held = Held::default();
    let mut rows = rows.iter().peekable();
    let first = errors.len().saturating_sub(MOST_REQUESTS);
    for error in &mut errors[first..] {
        let Some(time_ns) = error.time_ns else { continue };
        while let Some(row) = rows.next_if(|row| row.time_ns <= time_ns) {
            held.change(row);
        }
        error.pieces = held.pieces(error);
    }
}

impl Held {
    fn change(&mut self, row: &DeviceAllocation) {
        let key = (row.process, row.device, row.address);
        let is_block = row.allocator == Allocator::Framework && row.device.is_some();
        match (is_block, row.free) {
            (true, true) => {
                self.blocks.remove(&key);
            }
            (true, false) => {
                self.blocks.insert(key, row.bytes.unwrap_or(0));
                match self.segment_of(key) {
                    Some(segment) => self.used.insert(segment),
                    None => self.is_incomplete.insert((row.process, row.device)),
                };
            }
            (false, true) => {
                self.segments.remove(&key);
                self.used.remove(&key);
            }
            (false, false) if is_taken(row) => {
                self.segments.insert(key, row.bytes.unwrap_or(0));
            }
            (false, false) => {}
        }
    }

    fn segment_of(&self, block: Place) -> Option<Place> {
        let (process, device, address) = block;
        let (key, bytes) = self.segments.range((process, device, 0)..=block).next_back()?;
        (address < key.2.saturating_add(*bytes)).then_some(*key)
    }

    fn pieces(&self, error: &OutOfMemory) -> Option<FreePieces> {
        let (process, device) = (error.process, error.device);
        let all = (process, device, 0)..=(process, device, u64::MAX);
        let used: Vec<Place> = self.used.range(all).copied().collect();
        let sum: u64 = used.iter().filter_map(|key| self.segments.get(key)).sum();
        if used.is_empty()
            || self.is_incomplete.contains(&(process, device))
            || error.reserved.is_some_and(|reserved| reserved != sum)
        {
            return None;
        }
        let mut pieces = FreePieces::default();
        for key in used {
            let end = key.2.saturating_add(*self.segments.get(&key)?);
            let mut next = key.2;
            let blocks = self.blocks.range(key..(process, device, end));
            let ends =
                blocks.map(|((_, _, address), bytes)| (*address, address.saturating_add(*bytes)));
            for (from, until) in ends.chain([(end, end)]) {
                let free = from.saturating_sub(next);
                pieces.bytes += free;
                pieces.largest = pieces.largest.max(free);
                next = next.max(until);
            }
        }
        Some(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(time_ns: u64, allocator: Allocator, address: u64, bytes: i64) -> DeviceAllocation {
        DeviceAllocation {
            time_ns,
            allocator,
            address,
            device: Some(0),
            free: bytes < 0,
            bytes: Some(bytes.unsigned_abs()),
            kind: tprof_trace::model::MemoryKind::Device,
            ..DeviceAllocation::default()
        }
    }

    fn error(time_ns: u64, reserved: u64) -> OutOfMemory {
        OutOfMemory {
            process: 0,
            device: Some(0),
            order: 0,
            time_ns: Some(time_ns),
            thread: None,
            asked: 0,
            allocated: None,
            reserved: Some(reserved),
            device_free: None,
            stack: 0,
            line: None,
            pieces: None,
        }
    }

    #[test]
    fn free_pieces_are_the_gaps_between_blocks_of_an_allocators_segments() {
        use Allocator::{Framework, Library};
        let rows = [
            row(1, Library, 1000, 100),
            row(2, Framework, 1000, 30),
            row(3, Framework, 1030, 20),
            row(4, Framework, 1080, 20),
            row(5, Library, 2000, 50),
            row(6, Framework, 2000, 50),
            // The program's own memory.
            row(7, Library, 5000, 500),
            row(8, Framework, 1030, -20),
            row(9, Framework, 2000, -50),
            row(20, Library, 2000, -50),
        ];
        let mut errors = [error(10, 150), error(11, 151), error(21, 100)];
        add(&rows, &mut errors);
        let of = |bytes, largest| Some(FreePieces { bytes, largest });
        assert_eq!(errors.map(|error| error.pieces), [of(100, 50), None, of(50, 50)]);
        let pieces = FreePieces { bytes: 100, largest: 50 };
        let fits = [50, 51, 100, 101].map(|asked| pieces.fit(asked));
        assert_eq!(fits, [Fit::InOnePiece, Fit::InPieces, Fit::InPieces, Fit::No]);
    }

    #[test]
    fn a_block_outside_of_the_known_segments_leaves_pieces_unknown() {
        let rows = [row(1, Allocator::Library, 1000, 100), row(2, Allocator::Framework, 7000, 30)];
        let mut errors = [error(10, 100)];
        add(&rows, &mut errors);
        assert_eq!(errors[0].pieces, None);
    }
}
