//! What stream-ordered pools hold, by CUPTI's readings at each change of one: more than is given
//! out, since a pool keeps what comes back.

use std::collections::{BTreeMap, HashMap};

use tprof_trace::TraceFile;
use tprof_trace::model::{Allocator, ProcessIndex, counter};

use super::pools::PoolMemory;

/// Bytes that all pools of a device hold, of all processes of a file: from each moment on.
pub(super) type HeldBytes = BTreeMap<u64, u64>;

/// By device.
pub(super) fn held(file: &TraceFile) -> BTreeMap<u32, HeldBytes> {
    let mut readings: Vec<(u64, ProcessIndex, u32, u64)> = file
        .counters()
        .iter()
        .filter(|row| file.name(row.name) == counter::POOL_HELD_BYTES)
        .filter_map(|row| Some((row.time_ns, row.process?, row.device?, row.value as u64)))
        .collect();
    readings.sort_unstable();
    let mut by_process: HashMap<(u32, ProcessIndex), u64> = HashMap::new();
    let mut held: BTreeMap<u32, HeldBytes> = BTreeMap::new();
    for (time_ns, process, device, bytes) in readings {
        by_process.insert((device, process), bytes);
        let sum = by_process.iter().filter(|((of, _), _)| *of == device).map(|(_, bytes)| bytes);
        held.entry(device).or_default().insert(time_ns, sum.sum());
    }
    held
}

/// What was held at a moment.
pub(super) fn held_at(held: &HeldBytes, time_ns: u64) -> u64 {
    held.range(..=time_ns).next_back().map_or(0, |(_, bytes)| *bytes)
}

/// Adds it to the memory of pools that were replayed.
pub(super) fn add_held(pools: &mut [PoolMemory], held: &BTreeMap<u32, HeldBytes>) {
    for memory in pools.iter_mut().filter(|memory| memory.pool.allocator == Allocator::Pool) {
        let Some(held) = memory.pool.device.and_then(|device| held.get(&device)) else { continue };
        memory.peak_reserved_bytes = held.values().max().copied();
        for level in memory.curve.iter_mut().chain([&mut memory.peak, &mut memory.last]) {
            level.reserved_bytes = Some(held_at(held, level.time_ns));
        }
    }
}
