//! Defines rows for the heap and the mappings: events, and exact totals.

use super::ids::{ProcessIndex, StackId, ThreadIndex};

/// One heap event. Events are in order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapEvent {
    /// Time of the event.
    pub time_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Thread that made the change.
    pub thread: ThreadIndex,
    /// The change itself.
    pub what: HeapChange,
}

/// A change of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapChange {
    /// A block was allocated. `ordinal` counts the allocations of a process in this table, from 0.
    Alloc {
        /// Number of this allocation in its process.
        ordinal: u64,
        /// Number of bytes that were requested.
        size: u64,
        /// Stack of the call.
        stack: StackId,
        /// Whether this is the result of a `realloc`. The free of the old block comes just before.
        realloc: bool,
    },
    /// A block was freed.
    Free {
        /// Ordinal of the block's allocation; `None` if that wasn't recorded.
        ordinal: Option<u64>,
        /// Whether this is the first half of a successful `realloc`.
        realloc: bool,
    },
}

/// A mapping that the program itself made or removed (not its allocator).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEvent {
    /// Time of the event.
    pub time_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Thread that made the call.
    pub thread: ThreadIndex,
    /// Kind of change.
    pub kind: MapKind,
    /// First address of the mapping. For [`MapKind::Remap`], this is the new mapping.
    pub address: u64,
    /// Size of the mapping in bytes. For [`MapKind::Remap`], this is the new mapping.
    pub length: u64,
    /// For [`MapKind::Remap`], the size in bytes of the old mapping.
    pub old_length: u64,
    /// Stack of the call.
    pub stack: StackId,
}

/// A change of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// A mapping was made: `mmap`.
    Map,
    /// A mapping was removed: `munmap`.
    Unmap,
    /// A mapping was moved or resized: `mremap`.
    Remap,
    /// A System V segment was attached: `shmat`.
    Attach,
    /// A System V segment was detached: `shmdt`. Its length is 0 if the segment was attached before
    /// recording began.
    Detach,
}

/// Exact totals of a process at one moment. Every recording mode except `Off` counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapTotals {
    /// Time when the totals were read.
    pub time_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of allocations so far.
    pub allocations: u64,
    /// Number of frees so far.
    pub frees: u64,
    /// Number of bytes that were requested so far.
    pub allocated_bytes: u64,
    /// Live bytes; `None` if recording didn't cover the process's whole life.
    pub live_bytes: Option<u64>,
    /// The most live bytes so far.
    pub peak_bytes: Option<u64>,
    /// Time of the peak.
    pub peak_at_ns: Option<u64>,
}
