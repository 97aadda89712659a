//! Memory of one pool: what one allocator gave out of one device.

use tprof_trace::model::{Allocator, DeviceAllocation};

use super::phases::Category;

/// Points of a curve.
pub(super) const BUCKETS: u64 = 200;

/// An allocator, and the device whose memory it gives out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pool {
    /// The device; `None` for host memory.
    pub device: Option<u32>,
    /// The allocator that gave the memory.
    pub allocator: Allocator,
}

/// Memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The moment, ns.
    pub time_ns: u64,
    /// Bytes that are given out.
    pub allocated_bytes: u64,
    /// Held by the allocator, by its own total.
    pub reserved_bytes: Option<u64>,
    /// Bytes given out, by category; memory that was taken before the recording is in the first
    /// one.
    pub by_category: [u64; Category::COUNT],
}

/// Memory of one pool over the time of a rank.
#[derive(Clone, Debug)]
pub struct PoolMemory {
    /// The pool's allocator and device.
    pub pool: Pool,
    /// Number of blocks taken.
    pub allocations: u64,
    /// Number of blocks given back.
    pub frees: u64,
    /// Blocks that resets of the device gave back, and their bytes.
    pub reset_frees: u64,
    /// Bytes of blocks that resets gave back.
    pub reset_bytes: u64,
    /// Bytes of all blocks taken.
    pub taken_bytes: u64,
    /// Whether the bytes given out are the allocator's own sum. Otherwise they are added up from
    /// the records, and blocks that were taken before and never given back are missing.
    pub exact: bool,
    /// The level at which most was given out.
    pub peak: Level,
    /// The most bytes that the allocator held.
    pub peak_reserved_bytes: Option<u64>,
    /// The level at the end of the recording.
    pub last: Level,
    /// The most in each of `BUCKETS` parts of the time.
    pub curve: Vec<Level>,
    /// Whether operators and addresses were recorded, which define the categories of blocks.
    pub has_categories: bool,
    /// Whether the blocks are segments of a framework's allocator, as the operators show.
    pub is_segments: bool,
    /// Whether any block's size was recorded.
    pub is_sized: bool,
    /// Whether every block's address was recorded, by which its free is found.
    pub is_placed: bool,
    /// Whether times are times, and not positions in a sequence (memory snapshots of older
    /// PyTorch).
    pub timed: bool,
}

pub(super) fn pool_of(row: &DeviceAllocation) -> Pool {
    Pool { device: row.device, allocator: row.allocator }
}
