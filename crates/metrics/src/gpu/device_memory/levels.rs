//! Tracks the device memory that each process held over time, and the blocks that it never freed.

use std::collections::{BTreeMap, HashMap};

use tprof_rank::RankTrace;
use tprof_trace::model::{Allocator, DeviceAllocation, ProcessIndex, ThreadIndex};

use super::held_at::is_taken;
use super::{frees, resets};

/// Memory of one device that one process held.
#[derive(Clone, Debug)]
pub struct HeldOverTime {
    /// The process that holds the memory.
    pub process: ProcessIndex,
    /// The device that the memory is on, as the process numbers it.
    pub device: u32,
    /// The moments of changes, ns, each with the bytes held from then on; in order of time.
    levels: Vec<(u64, u64)>,
    /// Blocks that were never freed: time of the allocation, allocating thread, bytes.
    pub kept: Vec<(u64, ThreadIndex, u64)>,
}

impl HeldOverTime {
    /// Returns the levels of each process and device with recorded changes.
    pub fn of_rank(rank: &RankTrace<'_>) -> Vec<HeldOverTime> {
        let placed = frees::place(&rank.allocations);
        let (rows, _) = resets::expand(&placed);
        let mut live: HashMap<(ProcessIndex, Allocator, u64), &DeviceAllocation> = HashMap::new();
        let mut all: BTreeMap<(ProcessIndex, u32), HeldOverTime> = BTreeMap::new();
        for row in rows.iter() {
            let key = (row.process, row.allocator, row.address);
            let (of, grows, bytes) = match row.free {
                true => match live.remove(&key) {
                    Some(taken) => (taken, false, taken.bytes.unwrap_or(0)),
                    None => continue,
                },
                false if is_taken(row) => {
                    live.insert(key, row);
                    (row, true, row.bytes.unwrap_or(0))
                }
                false => continue,
            };
            let Some(device) = of.device else { continue };
            let held = all.entry((of.process, device)).or_insert_with(|| HeldOverTime {
                process: of.process,
                device,
                levels: Vec::new(),
                kept: Vec::new(),
            });
            let level = held.levels.last().map_or(0, |(_, level)| *level);
            let level =
                if grows { level.saturating_add(bytes) } else { level.saturating_sub(bytes) };
            held.levels.push((row.time_ns, level));
        }
        for row in live.into_values() {
            let held = row.device.and_then(|device| all.get_mut(&(row.process, device)));
            if let Some(held) = held {
                held.kept.push((row.time_ns, row.thread, row.bytes.unwrap_or(0)));
            }
        }
        all.values_mut().for_each(|held| held.kept.sort_unstable());
        all.into_values().collect()
    }

    /// Returns the bytes held at a moment.
    pub fn at(&self, time_ns: u64) -> u64 {
        let after = self.levels.partition_point(|(changed_ns, _)| *changed_ns <= time_ns);
        after.checked_sub(1).map_or(0, |last| self.levels[last].1)
    }
}
