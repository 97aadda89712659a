//! Defines the rows of a memory snapshot of PyTorch: the state of the caching allocator at one
//! moment, and its history.

use super::{NameId, ProcessIndex, StackId};

/// A segment, which the allocator requested from the device in one piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorSegment {
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of the device; `None` for pinned host memory.
    pub device: Option<u32>,
    /// Number of the segment in its file, from 0.
    pub segment: u64,
    /// Address of the segment.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Stream that the segment's blocks are for.
    pub stream: u64,
    /// Kind of the segment, as the framework names it: `small` or `large`.
    pub kind: NameId,
    /// First part of the id of the segment's private pool, which belongs to a CUDA graph or to the
    /// program. The id `0, 0` means the default pool. `None` if the file has no pools.
    pub pool_major: Option<u64>,
    /// Second part of the pool's id.
    pub pool_minor: Option<u64>,
    /// Whether the segment can grow (expandable segments); `None` if the file doesn't say.
    pub expandable: Option<bool>,
    /// Stack of the allocation for which the allocator requested the segment; 0 if no stack was
    /// recorded.
    pub stack: StackId,
    /// Everything else that the file contains about the segment, as a JSON object.
    pub args: NameId,
}

/// A block, which is a part of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorBlock {
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of the block's segment.
    pub segment: u64,
    /// Address of the block.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes that the program asked for; `None` if the file doesn't say.
    pub requested_bytes: Option<u64>,
    /// State of the block, as the framework names it: `active_allocated`, `inactive`,
    /// `active_pending_free`.
    pub state: NameId,
    /// Stack that allocated the block last; 0 if no stack was recorded.
    pub stack: StackId,
    /// Everything else that the file contains about the block, as a JSON object.
    pub args: NameId,
}

/// An action of the allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorEvent {
    /// Position of the action among those of its device.
    pub order: u64,
    /// Time of the action, nanoseconds since 1970; `None` if the file has no times.
    pub time_ns: Option<u64>,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of the device; `None` for pinned host memory.
    pub device: Option<u32>,
    /// The framework's name of the action: `alloc`, `free_completed`, `segment_alloc`, `oom` and
    /// others.
    pub action: NameId,
    /// Address of the memory; `None` if the action has none.
    pub address: Option<u64>,
    /// Size in bytes.
    pub bytes: u64,
    /// Number of the stream.
    pub stream: Option<u64>,
    /// For an `oom`, the bytes of memory that were free on the device.
    pub device_free_bytes: Option<u64>,
    /// Stack of the action; 0 if no stack was recorded.
    pub stack: StackId,
    /// Everything else that the file contains about the action, as a JSON object.
    pub args: NameId,
}
