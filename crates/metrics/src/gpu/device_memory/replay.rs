//! Replays the events of one pool in order, and computes its levels.

use rustc_hash::FxHashMap;
use tprof_trace::model::{DeviceAllocation, ProcessIndex};

use super::category::{Category, categories, gives_blocks};
use super::phases::EnclosingSpans;
use super::pools::{BUCKETS, Level, Pool, PoolMemory};

/// Joins each allocation of a pool with its free; both are indices of events.
struct BlockFrees {
    freed_by: Vec<Option<u32>>,
    /// For each free, the event that allocated the block; `None` if that event wasn't recorded.
    taken_by: Vec<Option<u32>>,
    /// Bytes of blocks whose allocation wasn't recorded. If rows lack addresses, this is a lower
    /// bound: the maximum by which freed bytes exceeded allocated bytes.
    earlier_bytes: u64,
}

impl BlockFrees {
    fn of(rows: &[&DeviceAllocation]) -> BlockFrees {
        let mut live: FxHashMap<(ProcessIndex, u64), u32> = FxHashMap::default();
        let mut blocks = BlockFrees {
            freed_by: vec![None; rows.len()],
            taken_by: vec![None; rows.len()],
            earlier_bytes: 0,
        };
        let (mut unplaced, mut lowest) = (0_i128, 0_i128);
        for (row, at) in rows.iter().zip(0_u32..) {
            if !row.is_placed() {
                let bytes = i128::from(row.bytes.unwrap_or(0));
                unplaced += if row.free { -bytes } else { bytes };
                lowest = lowest.min(unplaced);
                continue;
            }
            if !row.free {
                live.insert((row.process, row.address), at);
                continue;
            }
            match live.remove(&(row.process, row.address)) {
                Some(taken) => {
                    blocks.freed_by[taken as usize] = Some(at);
                    blocks.taken_by[at as usize] = Some(taken);
                }
                None => blocks.earlier_bytes += row.bytes.unwrap_or(0),
            }
        }
        let missing = u64::try_from(-lowest).unwrap_or(u64::MAX);
        blocks.earlier_bytes = blocks.earlier_bytes.saturating_add(missing);
        blocks
    }
}

/// Replays the events of one pool, which must be in order of time. Returns `None` if `rows` is empty.
pub(super) fn replay(
    pool: Pool,
    rows: &[&DeviceAllocation],
    operators: &EnclosingSpans<'_>,
) -> Option<PoolMemory> {
    let (first, end) = (rows.first()?, rows.last()?);
    let blocks = BlockFrees::of(rows);
    let categories = categories(operators, rows, &blocks.freed_by);
    let is_placed = rows.iter().all(|row| row.is_placed());
    let exact = rows.iter().all(|row| row.total_allocated_bytes.is_some());
    let mut level = Level {
        time_ns: first.time_ns,
        allocated_bytes: before(first).unwrap_or(blocks.earlier_bytes),
        reserved_bytes: first.total_reserved_bytes,
        by_category: [0; Category::COUNT],
    };
    level.by_category[Category::Unknown as usize] = level.allocated_bytes;
    let mut memory = PoolMemory {
        pool,
        allocations: rows.iter().filter(|row| !row.free).count() as u64,
        frees: rows.iter().filter(|row| row.free).count() as u64,
        reset_frees: 0,
        reset_bytes: 0,
        taken_bytes: rows.iter().filter(|row| !row.free).filter_map(|row| row.bytes).sum(),
        exact,
        peak: level,
        peak_reserved_bytes: rows.iter().filter_map(|row| row.total_reserved_bytes).max(),
        last: level,
        curve: Vec::new(),
        has_categories: !operators.is_empty() && is_placed && gives_blocks(pool.allocator),
        is_segments: !operators.is_empty() && !gives_blocks(pool.allocator),
        is_sized: rows.iter().any(|row| row.bytes.is_some()),
        is_placed,
        timed: true,
    };
    let bucket_ns = ((end.time_ns - first.time_ns) / BUCKETS).max(1);
    for (at, row) in rows.iter().enumerate() {
        let taken = blocks.taken_by[at].map(|taken| taken as usize);
        let bytes = row.bytes.or_else(|| rows[taken?].bytes).unwrap_or(0);
        let category = match (row.free, taken) {
            (false, _) => categories[at],
            (true, Some(taken)) => categories[taken],
            (true, None) => Category::Unknown,
        };
        let held = &mut level.by_category[category as usize];
        *held = if row.free { held.saturating_sub(bytes) } else { held.saturating_add(bytes) };
        let sum = match row.free {
            true => level.allocated_bytes.saturating_sub(bytes),
            false => level.allocated_bytes.saturating_add(bytes),
        };
        level.allocated_bytes = row.total_allocated_bytes.filter(|_| exact).unwrap_or(sum);
        level.reserved_bytes = row.total_reserved_bytes.or(level.reserved_bytes);
        level.time_ns = row.time_ns;
        if level.allocated_bytes > memory.peak.allocated_bytes {
            memory.peak = level;
        }
        let bucket = (row.time_ns - first.time_ns) / bucket_ns;
        match memory.curve.last_mut() {
            Some(last) if (last.time_ns - first.time_ns) / bucket_ns == bucket => {
                if level.allocated_bytes > last.allocated_bytes {
                    *last = level;
                }
            }
            _ => memory.curve.push(level),
        }
    }
    memory.last = level;
    Some(memory)
}

/// Returns the bytes given out before an event, by the allocator's own count.
fn before(row: &DeviceAllocation) -> Option<u64> {
    let (after, bytes) = (row.total_allocated_bytes?, row.bytes?);
    match row.free {
        true => after.checked_add(bytes),
        false => after.checked_sub(bytes),
    }
}
