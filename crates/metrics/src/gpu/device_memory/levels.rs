//! Tracks the device memory that each process held over time, and the blocks that it never freed.

use std::collections::{BTreeMap, HashMap};

use tprof_rank::RankTrace;
use tprof_trace::model::{Allocator, DeviceAllocation, ProcessIndex, ThreadIndex};

use super::blocks::DeviceBlock;
use super::held_at::is_taken;
use super::{frees, resets};
use crate::host::CodeLine;

/// Memory of one device that one process held.
#[derive(Clone, Debug)]
pub struct HeldOverTime {
    /// The process that holds the memory.
    pub process: ProcessIndex,
    /// The device that the memory is on, as the process numbers it.
    pub device: u32,
    /// The moments of changes, ns, each with the bytes held from then on; in order of time.
    levels: Vec<(u64, u64)>,
    /// Blocks that were never freed, in order of time.
    pub kept: Vec<KeptBlock>,
    /// Whether these are the blocks that a framework gave to the program, instead of what the process
    /// took from the driver.
    pub is_of_program: bool,
}

/// A block that was never freed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptBlock {
    /// Time of the allocation.
    pub taken_ns: u64,
    /// The thread that allocated the block.
    pub thread: ThreadIndex,
    /// Bytes of the block.
    pub bytes: u64,
    /// The line that it was allocated for, if that is known.
    pub line: Option<CodeLine>,
}

impl HeldOverTime {
    /// Returns the levels of each process and device whose framework reports these blocks.
    pub fn of_program(blocks: &[DeviceBlock]) -> Vec<HeldOverTime> {
        let mut changes: BTreeMap<(ProcessIndex, u32), Vec<(u64, i128)>> = BTreeMap::new();
        let mut all: BTreeMap<(ProcessIndex, u32), HeldOverTime> = BTreeMap::new();
        for block in blocks.iter().filter(|block| block.pool.allocator == Allocator::Framework) {
            let Some(device) = block.pool.device else { continue };
            let key = (block.process, device);
            let of = changes.entry(key).or_default();
            let bytes = i128::from(block.bytes);
            of.push((block.taken_ns, bytes));
            of.extend(block.given_ns.map(|given_ns| (given_ns, -bytes)));
            let held = all.entry(key).or_insert_with(|| HeldOverTime::new(key, true));
            if block.given_ns.is_none() {
                held.kept.push(KeptBlock {
                    taken_ns: block.taken_ns,
                    thread: block.thread,
                    bytes: block.bytes,
                    line: block.code.line.clone(),
                });
            }
        }
        for (key, mut changes) in changes {
            changes.sort_by_key(|(time_ns, _)| *time_ns);
            let mut level = 0;
            let levels = changes.into_iter().map(|(time_ns, bytes)| {
                level += bytes;
                (time_ns, u64::try_from(level).unwrap_or(0))
            });
            if let Some(held) = all.get_mut(&key) {
                held.levels = levels.collect();
            }
        }
        all.into_values().collect()
    }

    fn new((process, device): (ProcessIndex, u32), is_of_program: bool) -> HeldOverTime {
        HeldOverTime { process, device, levels: Vec::new(), kept: Vec::new(), is_of_program }
    }

    /// Returns what each process took from the driver of each device.
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
            let key = (of.process, device);
            let held = all.entry(key).or_insert_with(|| HeldOverTime::new(key, false));
            let level = held.levels.last().map_or(0, |(_, level)| *level);
            let level =
                if grows { level.saturating_add(bytes) } else { level.saturating_sub(bytes) };
            held.levels.push((row.time_ns, level));
        }
        for row in live.into_values() {
            let held = row.device.and_then(|device| all.get_mut(&(row.process, device)));
            if let Some(held) = held {
                held.kept.push(KeptBlock {
                    taken_ns: row.time_ns,
                    thread: row.thread,
                    bytes: row.bytes.unwrap_or(0),
                    line: None,
                });
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
