//! Derives the rows of a snapshot from the recorded changes of device memory: blocks that a
//! framework's allocator reported, and segments that it took from the driver.

use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxHashSet;
use tprof_trace::TraceFile;
use tprof_trace::model::*;

use super::{Named, SnapshotRows};
use crate::Written;

/// PyTorch takes segments of this size for blocks of at most 1 MiB, and larger ones for others.
const SMALL_SEGMENT: u64 = 2 << 20;

/// The process and the device of memory, and its address.
type Place = (ProcessIndex, Option<u32>, u64);

/// Returns the rows of a recorded run; `None` if it has no block of a framework's allocator.
pub(super) fn rows<'t>(trace: &'t TraceFile, written: &mut Written) -> Option<SnapshotRows<'t>> {
    let mut changes: Vec<DeviceAllocation> = trace.blocks::<DeviceAllocation>().flatten().collect();
    changes.sort_by_key(|row| row.time_ns);
    let is_block = |row: &&DeviceAllocation| is_framework(row) && row.is_placed();
    changes.iter().find(is_block)?;
    let mut replay = Replay::default();
    for (at, row) in changes.iter().enumerate() {
        replay.change(at, row);
    }
    let mut rows = SnapshotRows::default();
    for (at, row) in changes.iter().enumerate() {
        let is_segment = replay.used_segments.contains(&at);
        let word = match (is_framework(row), row.free) {
            (true, false) => "alloc",
            (true, true) => "free_completed",
            (false, _) if !is_segment => continue,
            (false, false) => "segment_alloc",
            (false, true) => "segment_free",
        };
        let bytes = replay.bytes[at];
        let (order, time_ns) = (at as u64, Some(row.time_ns));
        let (process, device, stack) = (row.process, row.device, row.stack);
        let address = row.is_placed().then_some(row.address);
        let event = AllocatorEvent {
            order,
            time_ns,
            process,
            device,
            address,
            bytes,
            stream: Some(0),
            stack,
            ..AllocatorEvent::default()
        };
        // PyTorch has two entries for a release. Without the first, its viewer takes the block for
        // one that waits for another stream. The viewer also fails if a block lies in no segment.
        let words: &[&str] = match (word, replay.alone.contains(&at)) {
            ("free_completed", false) => &["free_requested", "free_completed"],
            ("free_completed", true) => &["free_requested", "free_completed", "segment_free"],
            ("alloc", true) => &["segment_alloc", "alloc"],
            _ => &[word],
        };
        let named = words.iter().map(|word| Named { row: event, word });
        rows.events.entry(device).or_default().extend(named);
    }
    let alone =
        changes.iter().enumerate().filter(|(at, row)| replay.alone.contains(at) && !row.free);
    let alone = alone.count();
    if alone > 0 {
        written.notes.push(format!(
            "{alone} blocks are written as segments of their own, because the segments they lie in \
             were not recorded: expandable_segments:True, or a job that had begun before"
        ));
    }
    add_errors(trace, &mut rows, written);
    replay.add_segments(&mut rows);
    written.notes.push(
        "the allocator's streams and requested sizes are not recorded: all blocks are written as \
         those of stream 0, with rounded sizes"
            .to_owned(),
    );
    Some(rows)
}

/// Adds the requests that failed for lack of memory.
fn add_errors<'t>(trace: &'t TraceFile, rows: &mut SnapshotRows<'t>, written: &mut Written) {
    let mut without_free = 0;
    for mut row in trace.blocks::<AllocatorEvent>().flatten() {
        // The format has no such entry without this number.
        if row.device_free_bytes.is_none() {
            without_free += 1;
            continue;
        }
        row.args = NameId(0);
        // Without one, PyTorch's viewer takes it for a stream of its own.
        row.stream = Some(0);
        let word = trace.name(row.action);
        rows.events.entry(row.device).or_default().push(Named { row, word });
    }
    if without_free > 0 {
        written.notes.push(format!(
            "{without_free} requests that failed for lack of memory are left out, because the free \
             memory of the device was not recorded with them"
        ));
    }
    rows.events.values_mut().for_each(|of| of.sort_by_key(|named| named.row.time_ns));
}

fn is_framework(row: &DeviceAllocation) -> bool {
    row.allocator == Allocator::Framework && row.device.is_some()
}

/// Follows the changes in order.
#[derive(Default)]
struct Replay {
    /// Live segments. `taken_at` has the indices of the changes that took them.
    segments: BTreeMap<Place, DeviceAllocation>,
    taken_at: HashMap<Place, usize>,
    blocks: BTreeMap<Place, DeviceAllocation>,
    /// The changes of segments in which a block lay.
    used_segments: FxHashSet<usize>,
    /// The changes of blocks that lie in no recorded segment.
    alone: FxHashSet<usize>,
    /// Bytes of each change. Some frees don't have them.
    bytes: Vec<u64>,
}

impl Replay {
    fn change(&mut self, at: usize, row: &DeviceAllocation) {
        let key = (row.process, row.device, row.address);
        let mut bytes = row.bytes.unwrap_or(0);
        match (is_framework(row), row.free) {
            (true, true) => {
                let taken = self.blocks.remove(&key).unwrap_or(*row);
                bytes = row.bytes.or(taken.bytes).unwrap_or(0);
                if row.is_placed() && self.segment_of(&taken).is_none() {
                    self.alone.insert(at);
                }
            }
            (true, false) => {
                self.blocks.insert(key, *row);
                match self.segment_of(row) {
                    Some(segment) => self.used_segments.insert(self.taken_at[&segment]),
                    None => row.is_placed() && self.alone.insert(at),
                };
            }
            (false, true) => {
                if let Some(segment) = self.segments.remove(&key) {
                    bytes = segment.bytes.unwrap_or(0);
                    let taken_at = self.taken_at.remove(&key);
                    if taken_at.is_some_and(|at| self.used_segments.contains(&at)) {
                        self.used_segments.insert(at);
                    }
                }
            }
            (false, false) if row.allocator == Allocator::Library && row.device.is_some() => {
                self.segments.insert(key, *row);
                self.taken_at.insert(key, at);
            }
            (false, false) => {}
        }
        self.bytes.push(bytes);
    }

    /// Returns the segment in which a block lies.
    fn segment_of(&self, block: &DeviceAllocation) -> Option<Place> {
        let first = (block.process, block.device, 0);
        let until = (block.process, block.device, block.address);
        let (key, segment) = self.segments.range(first..=until).next_back()?;
        let end = segment.address.saturating_add(segment.bytes?);
        (block.address < end).then_some(*key)
    }

    /// Adds the segments that are held at the end, each with its blocks and the gaps between them.
    fn add_segments(self, rows: &mut SnapshotRows<'_>) {
        let used = self.segments.iter().filter(|(key, _)| {
            self.taken_at.get(key).is_some_and(|at| self.used_segments.contains(at))
        });
        let alone = self.blocks.iter();
        let alone = alone.filter(|(_, row)| row.is_placed() && self.segment_of(row).is_none());
        for (number, (key, segment)) in (0..).zip(used.chain(alone)) {
            let (process, device, address) = *key;
            let bytes = segment.bytes.unwrap_or(0);
            let row = AllocatorSegment {
                process,
                device,
                segment: number,
                address,
                bytes,
                stack: segment.stack,
                ..AllocatorSegment::default()
            };
            let word = if bytes == SMALL_SEGMENT { "small" } else { "large" };
            rows.segments.push(Named { row, word });
            let end = address.saturating_add(bytes);
            let block = |address, bytes, word, stack| Named {
                row: AllocatorBlock {
                    process,
                    segment: number,
                    address,
                    bytes,
                    // PyTorch's viewer needs this number.
                    requested_bytes: Some(bytes),
                    stack,
                    ..AllocatorBlock::default()
                },
                word,
            };
            let of_segment = rows.blocks.entry(number).or_default();
            let mut next = address;
            for (_, held) in self.blocks.range(*key..(process, device, end)) {
                if held.address > next {
                    of_segment.push(block(next, held.address - next, "inactive", 0));
                }
                let bytes = held.bytes.unwrap_or(0);
                of_segment.push(block(held.address, bytes, "active_allocated", held.stack));
                next = held.address.saturating_add(bytes);
            }
            if next < end {
                of_segment.push(block(next, end - next, "inactive", 0));
            }
        }
    }
}
