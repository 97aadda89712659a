//! Reports device memory: how much was allocated, its peak, and what held it at the peak.

mod block_tables;
mod blocks;
mod by_step;
mod category;
mod driver;
mod errors;
mod frees;
mod held_at;
mod levels;
mod phases;
mod pieces;
mod pools;
mod replay;
mod resets;
mod retries;
mod sites;
mod snapshot;
mod snapshot_tables;
mod sources;
mod stream_pools;
mod tables;
#[cfg(test)]
mod tests;
mod within;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::{Needs, RankTrace};
use tprof_trace::model::DeviceAllocation;

use crate::gpu::report_gpu::of_file;
use block_tables::NamedHolder;
use by_step::StepChanges;
use driver::DriverReadings;
use pools::{Pool, PoolMemory, pool_of};
use resets::Resets;
use sites::DeviceSite;
use snapshot::MemorySnapshot;
use sources::RecordedBy;

pub use blocks::{DeviceBlock, Holder, HolderCode, blocks, holders};
pub use errors::{OutOfMemory, failed_requests};
pub use held_at::{HeldOfDevice, held_until};
pub use levels::{HeldOverTime, KeptBlock};
pub use pieces::{Fit, FreePieces};
pub use retries::{Retry, retried_requests};
pub use snapshot::{SegmentSums, held};
pub(crate) use within::device_within;

/// The report `device-memory`.
pub const KIND: DocumentKind = DocumentKind {
    name: "device-memory",
    about: "device memory: peak, over time, by phase and stack",
    analysis: || boxed(DeviceMemory),
};

fn of_rows(
    rank: &RankTrace<'_>,
    allocations: &[DeviceAllocation],
    resets: &Resets,
) -> Vec<PoolMemory> {
    let mut pools: Vec<Pool> = allocations.iter().map(pool_of).collect();
    pools.sort_unstable();
    pools.dedup();
    let operators = phases::EnclosingSpans::of(rank);
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

/// The data that the report shows of one rank.
struct RankDeviceMemory {
    pools: Vec<PoolMemory>,
    sites: Vec<DeviceSite>,
    resets: Resets,
    /// Number of changes that the hooks and CUPTI each recorded; `None` if only one of the two
    /// could record.
    sources: Option<RecordedBy>,
    /// Number of recorded changes that are variables of modules and not allocations of the program.
    variables: u64,
    host: String,
    driver: Vec<DriverReadings>,
    /// The code that had allocated the blocks which were live at each pool's peak, by pool.
    holders: Vec<(Pool, Vec<NamedHolder>)>,
    /// Requests that failed for lack of memory.
    errors: Vec<OutOfMemory>,
    /// Requests that failed at first.
    retries: Vec<Retry>,
    /// What each step took of each pool and gave back.
    steps: Vec<StepChanges>,
    /// The memory snapshot that the file was imported from, if any.
    snapshot: Option<MemorySnapshot>,
}

/// Memory of devices: `tprof report device-memory`.
struct DeviceMemory;

impl Analysis for DeviceMemory {
    const KIND: &'static str = KIND.name;
    const HTA: bool = false;
    type Part = RankDeviceMemory;

    fn needs(&self, _: &Options) -> Needs {
        Needs::ALLOCATIONS | Needs::OPERATORS | Needs::ANNOTATIONS | Needs::CALLS | Needs::STEPS
    }

    fn rank(&self, rank: &RankTrace<'_>, _: &RankContext, _: &Options) -> RankDeviceMemory {
        let placed = frees::place(&rank.allocations);
        let (rows, resets) = resets::expand(&placed);
        let mut pools = of_rows(rank, &rows, &resets);
        let held = stream_pools::held(rank.file);
        stream_pools::set_reserved_bytes(&mut pools, &held);
        let sites = sites::of_rank(rank.file, &rows, &pools);
        let samples = of_file(rank.file);
        let driver = driver::readings(rank, &rows, &held, &samples);
        let sources = sources::of_file(rank.file);
        let snapshot = snapshot::of_file(rank.file);
        let timed = snapshot.as_ref().is_none_or(|snapshot| snapshot.timed);
        pools.iter_mut().for_each(|pool| pool.timed = timed);
        let (variables, host) = (sources::variables(&rank.allocations), samples.host);
        let errors = failed_requests(rank);
        let sizes = frees::sizes(&rows);
        RankDeviceMemory {
            retries: retries::of_rank(rank, (&rows, &sizes), &errors),
            steps: by_step::of_rank(rank, &rows, &sizes),
            holders: block_tables::holders_at_peaks(rank, &pools),
            errors,
            pools,
            sites,
            resets,
            sources,
            variables,
            host,
            driver,
            snapshot,
        }
    }

    fn join(&self, parts: Vec<(RankContext, RankDeviceMemory)>, _: &Options) -> Body {
        tables::body(&parts)
    }
}
