//! Finds the most device memory that processes held within windows of time.

use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxHashMap;
use tprof_rank::RankTrace;
use tprof_trace::model::{Allocator, DeviceAllocation, MemoryKind, ProcessIndex};

use super::held_at::is_taken;
use super::{frees, resets};
use crate::memory::{HeldLevel, HeldSweep, HeldWindow, HeldWithin, gap, lost, was_off};

const NO_MEMORY: &str = "no device memory of the process was recorded";

/// The device memory that a process holds, while its changes are replayed.
#[derive(Default)]
struct DeviceHoldings {
    /// Whether to count the blocks that the process's framework gave out instead of the segments
    /// that the framework allocated from the device for them.
    by_framework: bool,
    /// Whether each change reports the total bytes that its allocator had given out.
    has_totals: bool,
    by_device: BTreeMap<Option<u32>, u64>,
}

impl DeviceHoldings {
    fn counts(&self, row: &DeviceAllocation) -> bool {
        match self.by_framework {
            true => is_given(row),
            false => is_taken(row),
        }
    }
}

/// Whether a row belongs to a framework's allocator and to device memory.
fn is_given(row: &DeviceAllocation) -> bool {
    row.allocator == Allocator::Framework
        && row.device.is_some()
        && matches!(row.kind, MemoryKind::Device | MemoryKind::Unknown)
}

/// Returns the memory held in each window, in the order of `windows`, summed over all devices of
/// the window's process.
pub(crate) fn device_within(rank: &RankTrace<'_>, windows: &[HeldWindow]) -> Vec<HeldWithin> {
    let mut sweep = HeldSweep::of(windows);
    let placed = frees::place(&rank.allocations);
    let (rows, _) = resets::expand(&placed);
    let mut of: FxHashMap<ProcessIndex, DeviceHoldings> = FxHashMap::default();
    for row in rows.iter().filter(|row| is_given(row) || is_taken(row)) {
        let has_total = is_given(row) && row.total_allocated_bytes.is_some();
        let process = of
            .entry(row.process)
            .or_insert_with(|| DeviceHoldings { has_totals: true, ..DeviceHoldings::default() });
        process.by_framework |= is_given(row);
        process.has_totals &= has_total || !is_given(row);
    }
    let mut live: HashMap<(ProcessIndex, Allocator, u64), &DeviceAllocation> = HashMap::new();
    for row in rows.iter() {
        let Some(process) = of.get_mut(&row.process) else { continue };
        let key = (row.process, row.allocator, row.address);
        let (device, change) = match row.free {
            true => match live.remove(&key) {
                Some(taken) => (taken.device, -i128::from(taken.bytes.unwrap_or(0))),
                None if process.counts(row) => (row.device, 0),
                None => continue,
            },
            false if process.counts(row) => {
                live.insert(key, row);
                (row.device, i128::from(row.bytes.unwrap_or(0)))
            }
            false => continue,
        };
        let held = process.by_device.entry(device).or_default();
        *held = match row.total_allocated_bytes.filter(|_| process.has_totals) {
            Some(total) if process.by_framework => total,
            _ => u64::try_from(i128::from(*held) + change).unwrap_or(0),
        };
        let bytes = process.by_device.values().fold(0_u64, |sum, held| sum.saturating_add(*held));
        sweep.level(row.process, row.time_ns, HeldLevel::is(bytes));
    }
    let lost = lost(rank.file);
    let why = |window: &HeldWindow| match of.get(&window.process) {
        None => Some(NO_MEMORY.to_owned()),
        Some(process) if process.by_framework && process.has_totals => None,
        Some(_) if was_off(rank.file, window.process, u64::MAX) => Some(gap(rank.file)),
        Some(_) => lost.clone(),
    };
    let found = sweep.finish().into_iter().zip(windows);
    found
        .map(|(held, window)| match (held, why(window)) {
            (Some(held), None) => held,
            (_, why) => HeldWithin::missing(why.as_deref().unwrap_or(NO_MEMORY)),
        })
        .collect()
}
