//! Memory of one pool: what one allocator gave of one device.

use tprof_trace::model::{Allocator, DeviceAllocation};

use super::phases::Category;

/// Points of a curve.
pub(super) const BUCKETS: u64 = 200;

/// What gave memory, and of which device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    /// Held by the allocator, by its own total.
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
    /// Whether the sum given out is the allocator's own. Else it is added up
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
    /// Whether operators were recorded, and addresses, which define the categories of blocks.
    pub has_categories: bool,
    /// Whether its blocks are segments of a framework's allocator, by the operators.
    pub is_segments: bool,
    /// Whether any block's size was recorded.
    pub is_sized: bool,
    /// Whether every block's address was recorded, by which its free is found.
    pub is_placed: bool,
    /// Whether times are times, and not places in an order (memory snapshots of older PyTorch).
    pub timed: bool,
}

pub(super) fn pool_of(row: &DeviceAllocation) -> Pool {
    Pool { device: row.device, allocator: row.allocator }
}
