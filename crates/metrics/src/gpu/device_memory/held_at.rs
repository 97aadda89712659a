//! Finds the device memory that a process holds at a moment, and the code that allocated most of
//! it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tprof_rank::RankTrace;
use tprof_rank::base::frames::Frames;
use tprof_rank::base::sort_rows::SortRows;
use tprof_trace::model::{Allocator, DeviceAllocation, MemoryKind, ProcessIndex, StackId};

use super::{frees, resets};

/// The memory of a device that a process holds.
#[derive(Clone, Debug)]
pub struct HeldOfDevice {
    /// The device; `None` if it was not recorded.
    pub device: Option<u32>,
    /// Bytes of all blocks that were held at the moment.
    pub bytes: u64,
    /// Number of blocks that were held at the moment.
    pub blocks: u64,
    /// The code that allocated most of the memory, largest first: blocks, bytes, and the innermost
    /// function outside of the framework's allocator. Empty if no block has a stack.
    pub sites: Vec<(u64, u64, String)>,
}

/// Maximum number of places in the code that are named.
const MOST_SITES: usize = 3;

/// Parts of the names of functions between an operator and the driver: PyTorch's allocator and
/// dispatcher. They are skipped, because they don't show which code needs the memory.
const ALLOCATING: [&str; 7] = [
    "Allocator",
    "alloc_block",
    "::empty_",
    "c10::impl::",
    "c10::Dispatcher",
    "at::_ops::",
    "wrapper_CUDA",
];

/// Whether an allocation takes memory from a device. A block inside a framework's own segments
/// doesn't, because the segment already did. Memory of another process doesn't either.
pub(super) fn is_taken(row: &DeviceAllocation) -> bool {
    let own = matches!(row.allocator, Allocator::Library | Allocator::Pool | Allocator::Virtual);
    let kind = matches!(
        row.kind,
        MemoryKind::Device | MemoryKind::Array | MemoryKind::DeviceStatic | MemoryKind::Unknown
    );
    own && kind && row.device.is_some()
}

/// Returns the memory of each device that a process holds at a moment.
pub fn held_until(rank: &RankTrace<'_>, process: ProcessIndex, until_ns: u64) -> Vec<HeldOfDevice> {
    let placed = frees::place(&rank.allocations);
    let (rows, _) = resets::expand(&placed);
    let mut live: HashMap<(Allocator, u64), &DeviceAllocation> = HashMap::new();
    let of_process = |row: &&DeviceAllocation| row.process == process && row.time_ns <= until_ns;
    for row in rows.iter().filter(of_process) {
        match row.free {
            true => live.remove(&(row.allocator, row.address)),
            false if is_taken(row) => live.insert((row.allocator, row.address), row),
            false => None,
        };
    }
    let mut devices: BTreeMap<Option<u32>, HeldOfDevice> = BTreeMap::new();
    let mut stacks: BTreeMap<(Option<u32>, StackId), (u64, u64)> = BTreeMap::new();
    for row in live.values() {
        let size = row.bytes.unwrap_or(0);
        let held = devices.entry(row.device).or_insert_with(|| HeldOfDevice {
            device: row.device,
            bytes: 0,
            blocks: 0,
            sites: Vec::new(),
        });
        held.bytes = held.bytes.saturating_add(size);
        held.blocks += 1;
        if row.stack != 0 {
            let sum = stacks.entry((row.device, row.stack)).or_default();
            *sum = (sum.0 + 1, sum.1.saturating_add(size));
        }
    }
    let mut frames = Frames::new(rank.file);
    for (device, held) in &mut devices {
        let mut sites: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for ((_, stack), (blocks, bytes)) in stacks.iter().filter(|((of, _), _)| of == device) {
            if let Some(site) = site(&mut frames, process, *stack) {
                let sum = sites.entry(site).or_default();
                *sum = (sum.0 + blocks, sum.1.saturating_add(*bytes));
            }
        }
        let sites = sites.into_iter().map(|(site, (blocks, bytes))| (blocks, bytes, site));
        held.sites = sites.collect();
        held.sites.sort_rows_by_key(|(_, bytes, _)| Reverse(*bytes));
        held.sites.truncate(MOST_SITES);
    }
    devices.into_values().collect()
}

/// Returns the innermost function of a stack that isn't part of the framework's allocator; a Python
/// function comes with its line.
fn site(frames: &mut Frames<'_>, process: ProcessIndex, stack: StackId) -> Option<String> {
    let ids = frames.stack(process, stack);
    let texts = frames.texts(&ids);
    let is_python = |text: &&Arc<str>| text.contains(".py:");
    let is_own = |text: &&Arc<str>| !ALLOCATING.iter().any(|part| text.contains(part));
    let site = texts.iter().find(is_python).or_else(|| texts.iter().find(is_own))?;
    let site = site.replace("(anonymous namespace)::", "");
    Some(match site.contains(".py:") {
        true => site,
        false => site.split(['(', '<']).next().unwrap_or(&site).trim().to_owned(),
    })
}
