//! The state of a framework's caching allocator at one moment, and its history: PyTorch's memory
//! snapshots.

use super::{NameId, ProcessIndex, StackId};

/// Memory that the allocator took from the device as one piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorSegment {
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of the device; `None` for pinned host memory.
    pub device: Option<u32>,
    /// Number of the segment in its file, from 0 on.
    pub segment: u64,
    /// Address of the segment.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Stream that its blocks are for.
    pub stream: u64,
    /// Kind, as the framework names it: `small`, `large`.
    pub kind: NameId,
    /// First part of the id of its private pool (a CUDA graph's, or the program's; 0 and 0 are the
    /// default pool); `None` where the file has no pools.
    pub pool_major: Option<u64>,
    /// Second part of the pool's id.
    pub pool_minor: Option<u64>,
    /// Whether it can grow (expandable segments); `None` where the file does not state it.
    pub expandable: Option<bool>,
    /// Stack that made the allocator take it; 0 if no stack was taken.
    pub stack: StackId,
    /// Everything else that the file has, as a JSON object.
    pub args: NameId,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorBlock {
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of its segment.
    pub segment: u64,
    /// Address of the block.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes that the program asked for; `None` where the file does not state them.
    pub requested_bytes: Option<u64>,
    /// State, as the framework names it: `active_allocated`, `inactive`, `active_pending_free`.
    pub state: NameId,
    /// Stack that took it last; 0 if no stack was taken.
    pub stack: StackId,
    /// Everything else that the file has, as a JSON object.
    pub args: NameId,
}

/// Something that the allocator did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorEvent {
    /// Position among its device's events.
    pub order: u64,
    /// Time, nanoseconds since 1970; `None` where the file has no times.
    pub time_ns: Option<u64>,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of the device; `None` for pinned host memory.
    pub device: Option<u32>,
    /// The framework's name of the action: `alloc`, `free_completed`, `segment_alloc`, `oom` and
    /// others.
    pub action: NameId,
    /// Address of the memory; `None` where the action has none.
    pub address: Option<u64>,
    /// Size in bytes.
    pub bytes: u64,
    /// Number of the stream.
    pub stream: Option<u64>,
    /// For an `oom`, the bytes that the device had free.
    pub device_free_bytes: Option<u64>,
    /// Stack of the action; 0 if no stack was taken.
    pub stack: StackId,
    /// Everything else that the file has, as a JSON object.
    pub args: NameId,
}
