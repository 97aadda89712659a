//! Expands a `cudaDeviceReset` into frees of the blocks that the reset released.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use tprof_trace::model::{Allocator, DeviceAllocation, MemoryKind, ProcessIndex};

use super::pools::{Pool, pool_of};

/// The effect of all resets.
#[derive(Debug, Default)]
pub struct Resets {
    /// Number of resets.
    pub count: u64,
    /// Number and bytes of the blocks that resets freed, by pool.
    pub by_pool: BTreeMap<Pool, (u64, u64)>,
    /// Number of blocks of pinned host memory that resets may or may not have freed. Pinned memory
    /// belongs to a device. The records don't say which one, and the process used several devices.
    pub unclear: u64,
}

/// Replaces each reset with frees of the blocks that it released. `rows` must be in order of time.
pub fn expand(rows: &[DeviceAllocation]) -> (Cow<'_, [DeviceAllocation]>, Resets) {
    let mut resets = Resets::default();
    if !rows.iter().any(is_reset) {
        return (Cow::Borrowed(rows), resets);
    }
    let mut used: BTreeMap<ProcessIndex, BTreeSet<u32>> = BTreeMap::new();
    for row in rows {
        used.entry(row.process).or_default().extend(row.device);
    }
    let mut all = Vec::with_capacity(rows.len());
    let mut live: BTreeMap<(ProcessIndex, u64), DeviceAllocation> = BTreeMap::new();
    for row in rows {
        if !is_reset(row) {
            match row.free {
                true => live.remove(&(row.process, row.address)),
                false => live.insert((row.process, row.address), *row),
            };
            all.push(*row);
            continue;
        }
        resets.count += 1;
        let has_one = used.get(&row.process).is_some_and(|used| used.len() == 1);
        let of_process = live.range((row.process, 0)..=(row.process, u64::MAX));
        let mut gone = Vec::new();
        for (key, block) in of_process.filter(|(_, one)| one.allocator != Allocator::Framework) {
            let is_pinned = block.device.is_none() && block.kind == MemoryKind::Pinned;
            if block.device == row.device || is_pinned && has_one {
                gone.push(*key);
            } else if is_pinned {
                resets.unclear += 1;
            }
        }
        for block in gone.into_iter().filter_map(|key| live.remove(&key)) {
            let sum = resets.by_pool.entry(pool_of(&block)).or_default();
            *sum = (sum.0 + 1, sum.1.saturating_add(block.bytes.unwrap_or(0)));
            let DeviceAllocation { time_ns, thread, .. } = *row;
            all.push(DeviceAllocation { time_ns, thread, free: true, ..block });
        }
    }
    (Cow::Owned(all), resets)
}

fn is_reset(row: &DeviceAllocation) -> bool {
    // Only the hooks record resets. Rows of the agent have a correlation, so a row with one isn't a
    // reset.
    row.free
        && row.address == 0
        && row.allocator == Allocator::Library
        && row.device.is_some()
        && row.correlation.is_none()
}
