//! Reads the contents of a framework's allocator at the time of a memory snapshot.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::Value;
use tprof_rank::base::frames::{FrameId, Frames};
use tprof_rank::base::sort_rows::SortRows;
use tprof_trace::TraceFile;
use tprof_trace::model::{AllocatorBlock, AllocatorEvent, AllocatorSegment};

/// The property that an import writes for each memory snapshot.
const SNAPSHOT: &str = "torch.memory_snapshot";
/// The property that contains the allocator's settings.
const SETTINGS: &str = "torch.memory_snapshot.allocator_settings";

/// Bytes of segments by the state of their blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentSums {
    /// Number of segments.
    pub segments: u64,
    /// Bytes of the segments.
    pub reserved: u64,
    /// Number of blocks in use by the program.
    pub blocks: u64,
    /// Bytes of the blocks in use.
    pub allocated: u64,
    /// Bytes that the program asked for; `None` if a block in use lacks this number.
    pub requested: Option<u64>,
    /// Bytes that the program has freed, but that the allocator can't reuse until a stream is done
    /// with them.
    pub awaiting: u64,
    /// Bytes that the allocator can hand out.
    pub free: u64,
    /// Bytes of the largest free block.
    pub largest_free: u64,
    /// Bytes of free blocks in segments that also have blocks in use. The allocator can't return
    /// these segments to the device.
    pub stranded: u64,
    /// Bytes of segments whose blocks the file doesn't list.
    pub unknown: u64,
}

/// Segments that can serve the same requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentGroup {
    /// The device; `None` for pinned host memory.
    pub device: Option<u32>,
    /// The private pool; `None` if the file has none.
    pub pool: Option<(u64, u64)>,
    /// The stream of the segments.
    pub stream: u64,
    /// The kind of segments: `small` or `large`.
    pub kind: String,
    /// Whether the segments can grow; `None` if the file does not say.
    pub expandable: Option<bool>,
}

/// Blocks in use that were allocated by one stack.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LiveStack {
    pub device: Option<u32>,
    pub blocks: u64,
    pub bytes: u64,
    /// Frames of the stack, innermost first.
    pub stack: Vec<Arc<str>>,
}

/// A memory snapshot of a framework.
#[derive(Clone, Debug, Default)]
pub(super) struct MemorySnapshot {
    /// Whether the entries of the history have times.
    pub timed: bool,
    pub groups: BTreeMap<SegmentGroup, SegmentSums>,
    pub stacks: Vec<LiveStack>,
    /// Number and bytes of the history's entries, by device and action.
    pub actions: BTreeMap<(Option<u32>, String), (u64, u64)>,
    pub settings: Vec<(String, String)>,
}

impl SegmentSums {
    /// Adds a segment's sums.
    pub fn add(&mut self, other: &SegmentSums) {
        let first = self.segments == 0;
        self.segments += other.segments;
        self.reserved += other.reserved;
        self.blocks += other.blocks;
        self.allocated += other.allocated;
        self.requested = match first {
            true => other.requested,
            false => self.requested.zip(other.requested).map(|(one, two)| one + two),
        };
        self.awaiting += other.awaiting;
        self.free += other.free;
        self.largest_free = self.largest_free.max(other.largest_free);
        self.stranded += other.stranded;
        self.unknown += other.unknown;
    }
}

impl MemorySnapshot {
    /// Sums up the segments by device.
    pub fn by_device(&self) -> BTreeMap<Option<u32>, SegmentSums> {
        let mut devices: BTreeMap<Option<u32>, SegmentSums> = BTreeMap::new();
        for (group, held) in &self.groups {
            devices.entry(group.device).or_default().add(held);
        }
        devices
    }
}

/// Sums up the segments of a file, grouped by the requests that they can serve; empty if the file
/// isn't a snapshot.
pub fn held(file: &TraceFile) -> BTreeMap<SegmentGroup, SegmentSums> {
    let mut sums: FxHashMap<u64, SegmentSums> = FxHashMap::default();
    for block in file.blocks::<AllocatorBlock>().flatten() {
        let sum = sums
            .entry(block.segment)
            .or_insert(SegmentSums { requested: Some(0), ..SegmentSums::default() });
        match file.name(block.state) {
            "active_allocated" => {
                sum.blocks += 1;
                sum.allocated += block.bytes;
                let both = sum.requested.zip(block.requested_bytes);
                sum.requested = both.map(|(one, two)| one + two);
            }
            "inactive" => {
                sum.free += block.bytes;
                sum.largest_free = sum.largest_free.max(block.bytes);
            }
            // Blocks in the state `active_pending_free`, which older files call
            // `active_awaiting_free`.
            _ => sum.awaiting += block.bytes,
        }
    }
    let mut groups: BTreeMap<SegmentGroup, SegmentSums> = BTreeMap::new();
    for row in file.blocks::<AllocatorSegment>().flatten() {
        let mut sum = SegmentSums { segments: 1, reserved: row.bytes, ..SegmentSums::default() };
        match sums.remove(&row.segment) {
            Some(blocks) => {
                let stranded = if blocks.free < row.bytes { blocks.free } else { 0 };
                sum = SegmentSums { segments: 1, reserved: row.bytes, stranded, ..blocks };
            }
            None => sum.unknown = row.bytes,
        }
        let group = SegmentGroup {
            device: row.device,
            pool: row.pool_major.zip(row.pool_minor),
            stream: row.stream,
            kind: file.name(row.kind).to_owned(),
            expandable: row.expandable,
        };
        groups.entry(group).or_default().add(&sum);
    }
    groups
}

/// Reads the snapshot of a file; `None` if the file wasn't imported from a snapshot.
pub(super) fn of_file(file: &TraceFile) -> Option<MemorySnapshot> {
    let text = file.properties().filter(|(key, _)| *key == SNAPSHOT).last()?.1;
    let facts: Value = serde_json::from_str(text).ok()?;
    let mut frames = Frames::new(file);
    let mut snapshot = MemorySnapshot {
        timed: facts["timed"] == true,
        groups: held(file),
        stacks: stacks(file, &mut frames),
        ..MemorySnapshot::default()
    };
    for row in file.blocks::<AllocatorEvent>().flatten() {
        let action = file.name(row.action);
        let sums = snapshot.actions.entry((row.device, action.to_owned())).or_default();
        sums.0 += 1;
        sums.1 = sums.1.saturating_add(row.bytes);
    }
    snapshot.settings = settings(file);
    Some(snapshot)
}

/// Returns the blocks in use by stack, most bytes first. Blocks without a stack form one row.
fn stacks(file: &TraceFile, frames: &mut Frames<'_>) -> Vec<LiveStack> {
    let device_of: FxHashMap<u64, Option<u32>> = (file.blocks::<AllocatorSegment>().flatten())
        .map(|row| (row.segment, row.device))
        .collect();
    let mut sums: BTreeMap<(Option<u32>, Vec<FrameId>), (u64, u64)> = BTreeMap::new();
    let live = file.blocks::<AllocatorBlock>().flatten();
    for row in live.filter(|row| file.name(row.state) != "inactive") {
        let device = device_of.get(&row.segment).copied().flatten();
        let stack = frames.stack(row.process, row.stack);
        let sum = sums.entry((device, stack)).or_default();
        *sum = (sum.0 + 1, sum.1 + row.bytes);
    }
    let one = |((device, stack), (blocks, bytes)): ((Option<u32>, Vec<FrameId>), (u64, u64))| {
        LiveStack { device, blocks, bytes, stack: frames.texts(&stack) }
    };
    let mut rows: Vec<LiveStack> = sums.into_iter().map(one).collect();
    rows.sort_rows_by_key(|row| Reverse(row.bytes));
    rows
}

fn settings(file: &TraceFile) -> Vec<(String, String)> {
    let Some((_, text)) = file.properties().filter(|(key, _)| *key == SETTINGS).last() else {
        return Vec::new();
    };
    let values: serde_json::Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    let text = |value: Value| match value {
        Value::String(text) => text,
        value => value.to_string(),
    };
    values.into_iter().map(|(key, value)| (key, text(value))).collect()
}
