//! Memory of devices: how much was taken, when most, and what held it then.

mod phases;
mod replay;
mod resets;
mod sites;
mod tables;
#[cfg(test)]
mod tests;

use tprof_trace::model::{Allocator, DeviceAllocation};

use crate::document::{Analysis, Body, DocumentKind, Options, RankAt, boxed};
use crate::rank::{Needs, RankTrace};
pub use phases::Category;
pub use resets::Resets;
pub use sites::Site;

/// The report.
pub const KIND: DocumentKind = DocumentKind {
    name: "device-memory",
    about: "memory of devices: peak, over time, by what held it",
    analysis: || boxed(DeviceMemory),
};

/// Points of a curve.
const BUCKETS: u64 = 200;

/// What gave memory, and of which device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pool {
    /// Device; none for host memory.
    pub device: Option<u32>,
    /// Who gave it.
    pub allocator: Allocator,
}

/// Memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// When.
    pub time_ns: u64,
    /// Given out.
    pub allocated_bytes: u64,
    /// Held by the allocator, where it says so.
    pub reserved_bytes: Option<u64>,
    /// Given out, by category; what was taken before recording is in the first.
    pub by_category: [u64; Category::COUNT],
}

/// Memory of one pool over a rank's time.
#[derive(Clone, Debug)]
pub struct PoolMemory {
    /// Which.
    pub pool: Pool,
    /// Blocks taken.
    pub allocations: u64,
    /// Blocks given back.
    pub frees: u64,
    /// Of these, by resets of the device; and their bytes.
    pub reset_frees: u64,
    /// Bytes of blocks that resets gave back.
    pub reset_bytes: u64,
    /// Bytes taken.
    pub taken_bytes: u64,
    /// Whether the allocator itself said how much was given out. Else it is added up
    /// from what was recorded, and blocks taken before and never given back are missing.
    pub exact: bool,
    /// When most was given out.
    pub peak: Level,
    /// Most that the allocator held.
    pub peak_reserved_bytes: Option<u64>,
    /// At the end of recording.
    pub last: Level,
    /// The most in each of `BUCKETS` parts of the time.
    pub curve: Vec<Level>,
    /// Whether operators were recorded, and addresses, by which categories are told.
    pub has_categories: bool,
    /// Whether every block's address was recorded, by which its free is found.
    pub is_placed: bool,
}

fn of_rows(
    rank: &RankTrace<'_>,
    allocations: &[DeviceAllocation],
    resets: &Resets,
) -> Vec<PoolMemory> {
    let mut pools: Vec<Pool> = allocations.iter().map(pool_of).collect();
    pools.sort_unstable();
    pools.dedup();
    let operators = phases::Operators::of(rank);
    let of_pool = |pool: Pool| {
        let rows: Vec<&DeviceAllocation> =
            allocations.iter().filter(|row| pool_of(row) == pool).collect();
        let mut memory = replay::replay(pool, &rows, &operators)?;
        (memory.reset_frees, memory.reset_bytes) =
            resets.by_pool.get(&pool).copied().unwrap_or_default();
        Some(memory)
    };
    pools.into_iter().filter_map(of_pool).collect()
}

fn pool_of(row: &DeviceAllocation) -> Pool {
    Pool { device: row.device, allocator: row.allocator }
}

/// What a rank's report shows.
struct Part {
    pools: Vec<PoolMemory>,
    sites: Vec<Site>,
    resets: Resets,
}

/// `tprof report device-memory`.
struct DeviceMemory;

impl Analysis for DeviceMemory {
    const KIND: &'static str = KIND.name;
    const HTA: bool = false;
    type Part = Part;

    fn needs(&self, _: &Options) -> Needs {
        Needs::ALLOCATIONS | Needs::OPERATORS | Needs::ANNOTATIONS
    }

    fn rank(&self, rank: &RankTrace<'_>, _: &RankAt, _: &Options) -> Part {
        let (rows, resets) = resets::told_by_block(&rank.allocations);
        let pools = of_rows(rank, &rows, &resets);
        let sites = sites::of_rank(rank.file, &rows, &pools);
        Part { pools, sites, resets }
    }

    fn join(&self, parts: Vec<(RankAt, Part)>, _: &Options) -> Body {
        tables::body(&parts)
    }
}
