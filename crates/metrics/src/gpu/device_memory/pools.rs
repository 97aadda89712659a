//! Defines the memory of a pool, which consists of the blocks that one allocator gave out on one
//! device.

use tprof_trace::model::{Allocator, DeviceAllocation};

use super::category::Category;

/// Number of points of a curve.
pub(super) const BUCKETS: u64 = 200;

/// An allocator, and the device whose memory it gives out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pool {
    /// The device; `None` for host memory.
    pub device: Option<u32>,
    /// The allocator that gave out the memory.
    pub allocator: Allocator,
}

/// Memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The moment, ns.
    pub time_ns: u64,
    /// Bytes in blocks that are given out.
    pub allocated_bytes: u64,
    /// Bytes that the allocator holds, by its own count.
    pub reserved_bytes: Option<u64>,
    /// Bytes given out, by category. The category of memory that was allocated before the recording
    /// is unknown.
    pub by_category: [u64; Category::COUNT],
}

/// Memory of one pool over the time of a rank.
#[derive(Clone, Debug)]
pub struct PoolMemory {
    /// The pool's allocator and device.
    pub pool: Pool,
    /// Number of blocks that were allocated.
    pub allocations: u64,
    /// Number of blocks that were freed.
    pub frees: u64,
    /// Number of blocks that resets of the device freed.
    pub reset_frees: u64,
    /// Bytes of blocks that resets freed.
    pub reset_bytes: u64,
    /// Bytes of all blocks that were allocated.
    pub taken_bytes: u64,
    /// Whether the bytes given out are the allocator's own count. Otherwise they are added up from
    /// the records, and lack blocks that were allocated before the recording and never freed.
    pub exact: bool,
    /// The level at which most bytes were given out.
    pub peak: Level,
    /// The most bytes that the allocator held.
    pub peak_reserved_bytes: Option<u64>,
    /// The level at the end of the recording.
    pub last: Level,
    /// The highest level in each of `BUCKETS` parts of the time.
    pub curve: Vec<Level>,
    /// Whether the blocks have categories: this needs recorded operators and addresses.
    pub has_categories: bool,
    /// Whether the operators show that the blocks are segments of a framework's allocator.
    pub is_segments: bool,
    /// Whether any block's size was recorded.
    pub is_sized: bool,
    /// Whether every block's address was recorded; the address joins a block and its free.
    pub is_placed: bool,
    /// Whether the times are real. In memory snapshots of older PyTorch they are positions in a
    /// sequence.
    pub timed: bool,
}

pub(super) fn pool_of(row: &DeviceAllocation) -> Pool {
    Pool { device: row.device, allocator: row.allocator }
}
