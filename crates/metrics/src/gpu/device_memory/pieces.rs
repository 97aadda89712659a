//! Finds what was free within a caching allocator's segments when a request failed or was made again:
//! in all, and in the largest piece.

use std::collections::{BTreeMap, BTreeSet};

use tprof_trace::model::{Allocator, DeviceAllocation, ProcessIndex};

use super::held_at::is_taken;

/// At most this many requests of a rank get their free pieces: the last ones.
const MOST_REQUESTS: usize = 256;

/// What was free within segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreePieces {
    /// Bytes of all pieces.
    pub bytes: u64,
    /// Bytes of the largest piece.
    pub largest: u64,
}

/// A request, of which the free pieces are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub process: ProcessIndex,
    pub device: Option<u32>,
    pub time_ns: Option<u64>,
    /// Bytes that the allocator had reserved, if it said so.
    pub reserved: Option<u64>,
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

/// Returns what was free when each of these requests was made, which must be in order of time like
/// `rows`; `None` where the recorded segments aren't all that the allocator held.
pub(super) fn at_requests(
    rows: &[DeviceAllocation],
    requests: &[Request],
) -> Vec<Option<FreePieces>> {
    let mut held = Held::default();
    let mut rows = rows.iter().peekable();
    let first = requests.len().saturating_sub(MOST_REQUESTS);
    let mut found = vec![None; first];
    found.extend(requests[first..].iter().map(|request| {
        let time_ns = request.time_ns?;
        while let Some(row) = rows.next_if(|row| row.time_ns <= time_ns) {
            held.change(row);
        }
        held.pieces(request)
    }));
    found
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

    fn pieces(&self, request: &Request) -> Option<FreePieces> {
        let (process, device) = (request.process, request.device);
        let all = (process, device, 0)..=(process, device, u64::MAX);
        let used: Vec<Place> = self.used.range(all).copied().collect();
        let sum: u64 = used.iter().filter_map(|key| self.segments.get(key)).sum();
        if used.is_empty()
            || self.is_incomplete.contains(&(process, device))
            || request.reserved.is_some_and(|reserved| reserved != sum)
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

    fn request(time_ns: u64, reserved: u64) -> Request {
        Request { process: 0, device: Some(0), time_ns: Some(time_ns), reserved: Some(reserved) }
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
        let requests = [request(10, 150), request(11, 151), request(21, 100)];
        let of = |bytes, largest| Some(FreePieces { bytes, largest });
        assert_eq!(at_requests(&rows, &requests), [of(100, 50), None, of(50, 50)]);
        let pieces = FreePieces { bytes: 100, largest: 50 };
        let fits = [50, 51, 100, 101].map(|asked| pieces.fit(asked));
        assert_eq!(fits, [Fit::InOnePiece, Fit::InPieces, Fit::InPieces, Fit::No]);
    }

    #[test]
    fn a_block_outside_of_the_known_segments_leaves_pieces_unknown() {
        let rows = [row(1, Allocator::Library, 1000, 100), row(2, Allocator::Framework, 7000, 30)];
        assert_eq!(at_requests(&rows, &[request(10, 100)]), [None]);
    }
}
