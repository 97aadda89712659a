//! Reads the sizes of stream-ordered pools (`cudaMallocAsync`), which CUPTI reports at each change.
//! A pool reserves more than the blocks that are allocated from it, because it keeps freed blocks.

use std::collections::BTreeMap;

use tprof_trace::TraceFile;
use tprof_trace::model::{Allocator, ProcessIndex, counter};

use super::pools::PoolMemory;

/// The bytes that the pools of a device hold over time, in one process or in all processes: each
/// entry holds from its time, on the file's clock in ns, until the next one's.
pub(super) type HeldOverTime = BTreeMap<u64, u64>;

/// The bytes that the pools of a file hold.
#[derive(Default)]
pub(super) struct PoolHoldings {
    /// Bytes by process and device, as the process numbers it.
    pub by_process: BTreeMap<(ProcessIndex, u32), HeldOverTime>,
    /// Bytes over all processes, by the number of the device. Processes may number devices
    /// differently.
    by_number: BTreeMap<u32, HeldOverTime>,
}

/// Reads the pool sizes of a file.
pub(super) fn held(file: &TraceFile) -> PoolHoldings {
    let mut readings: Vec<(u64, ProcessIndex, u32, u64)> = file
        .counters()
        .iter()
        .filter(|row| file.name(row.name) == counter::POOL_HELD_BYTES && file.holds(row.time_ns))
        .filter_map(|row| Some((row.time_ns, row.process?, row.device?, row.value as u64)))
        .collect();
    readings.sort_unstable();
    let mut held = PoolHoldings::default();
    for (time_ns, process, device, bytes) in readings {
        held.by_process.entry((process, device)).or_default().insert(time_ns, bytes);
        let of_device = held.by_process.iter().filter(|((_, of), _)| *of == device);
        let sum = of_device.map(|(_, held)| held_at(held, time_ns)).sum();
        held.by_number.entry(device).or_default().insert(time_ns, sum);
    }
    held
}

/// Returns the bytes held at a moment; 0 before the first reading.
pub(super) fn held_at(held: &HeldOverTime, time_ns: u64) -> u64 {
    held.range(..=time_ns).next_back().map_or(0, |(_, bytes)| *bytes)
}

/// Sets the reserved bytes of pools, which the replay of allocations can't know, to the sizes that
/// were recorded.
pub(super) fn set_reserved_bytes(pools: &mut [PoolMemory], held: &PoolHoldings) {
    for memory in pools.iter_mut().filter(|memory| memory.pool.allocator == Allocator::Pool) {
        let Some(held) = memory.pool.device.and_then(|device| held.by_number.get(&device)) else {
            continue;
        };
        memory.peak_reserved_bytes = held.values().max().copied();
        for level in memory.curve.iter_mut().chain([&mut memory.peak, &mut memory.last]) {
            level.reserved_bytes = Some(held_at(held, level.time_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::Counter;

    use super::*;

    #[test]
    fn pools_of_processes_add_up_by_number_and_stay_apart_by_process() {
        let mut made = Fixture::new();
        for (time_ns, process, value) in [(10, 0, 100.0), (20, 1, 30.0), (30, 0, 50.0)] {
            let name = made.writer.name(counter::POOL_HELD_BYTES);
            let (process, device) = (Some(process), Some(0));
            made.writer.counter(Counter { time_ns, process, device, name, value });
        }
        let held = held(&made.finish());
        let at = |of: &HeldOverTime| [10, 20, 30].map(|time_ns| held_at(of, time_ns));
        assert_eq!(at(&held.by_process[&(0, 0)]), [100, 100, 50]);
        assert_eq!(at(&held.by_process[&(1, 0)]), [0, 30, 30]);
        assert_eq!(at(&held.by_number[&0]), [100, 130, 80]);
    }
}
