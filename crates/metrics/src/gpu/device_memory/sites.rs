//! Finds the code that allocated a device's memory, by host stacks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tprof_rank::base::frames::{FrameId, Frames};
use tprof_rank::base::sort_rows::SortRows;
use tprof_trace::TraceFile;
use tprof_trace::model::DeviceAllocation;

use super::pools::{Pool, PoolMemory, pool_of};

/// The memory that one stack allocated from one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSite {
    /// The pool that the memory comes from.
    pub pool: Pool,
    /// Number of blocks that were allocated.
    pub allocations: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// Bytes that were live at the pool's peak.
    pub peak_bytes: u64,
    /// Bytes that were live when recording ended.
    pub live_bytes: u64,
    /// Frames of the stack, innermost first.
    pub stack: Vec<Arc<str>>,
}

/// Returns the sites of a rank. Sites with the most live bytes at their pool's peak come first.
/// Blocks without a stack are left out.
pub fn of_rank(
    file: &TraceFile,
    rows: &[DeviceAllocation],
    pools: &[PoolMemory],
) -> Vec<DeviceSite> {
    let mut frames = Frames::new(file);
    let mut index: BTreeMap<(Pool, Vec<FrameId>), usize> = BTreeMap::new();
    let mut sites: Vec<DeviceSite> = Vec::new();
    // Live blocks by pool, process and address, each with its site, its bytes and its time of
    // allocation. The pool is part of the key because a framework's block may begin at the same
    // address as its segment.
    let mut live: HashMap<(Pool, u32, u64), (usize, u64, u64)> = HashMap::new();
    let peak_ns =
        |pool: Pool| pools.iter().find(|row| row.pool == pool).map(|row| row.peak.time_ns);
    for row in rows {
        let key = (pool_of(row), row.process, row.address);
        if row.free {
            if let Some((site, bytes, taken_ns)) = live.remove(&key) {
                let peak = peak_ns(sites[site].pool);
                let held = peak.is_some_and(|peak| taken_ns <= peak && peak < row.time_ns);
                sites[site].peak_bytes += if held { bytes } else { 0 };
            }
            continue;
        }
        let Some(bytes) = row.bytes.filter(|_| row.stack != 0) else { continue };
        let (pool, stack) = (pool_of(row), frames.stack(row.process, row.stack));
        let site = *index.entry((pool, stack)).or_insert_with_key(|(pool, stack)| {
            let (pool, stack) = (*pool, frames.texts(stack));
            let (allocations, bytes) = (0, 0);
            sites.push(DeviceSite {
                pool,
                allocations,
                bytes,
                peak_bytes: 0,
                live_bytes: 0,
                stack,
            });
            sites.len() - 1
        });
        sites[site].allocations += 1;
        sites[site].bytes += bytes;
        live.insert(key, (site, bytes, row.time_ns));
    }
    for (site, bytes, taken_ns) in live.into_values() {
        sites[site].live_bytes += bytes;
        let held = peak_ns(sites[site].pool).is_some_and(|peak| taken_ns <= peak);
        sites[site].peak_bytes += if held { bytes } else { 0 };
    }
    sites.sort_rows_by_key(|site| {
        (site.pool.device.is_none(), Reverse((site.peak_bytes, site.bytes)))
    });
    sites
}
