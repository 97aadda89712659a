//! The heap and mappings, as events and as exact totals.

use super::ids::{ProcessIndex, StackId, ThreadIndex};

/// One heap event; events are in time order.
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
    /// A block. `ordinal` counts the allocations of a process in this table, from 0.
    Alloc {
        /// Number of this allocation in its process.
        ordinal: u64,
        /// Bytes asked for.
        size: u64,
        /// Stack of the call.
        stack: StackId,
        /// Result of a `realloc`; the free of its old block comes just before.
        realloc: bool,
    },
    /// A block was given back.
    Free {
        /// The allocation that it ends; `None` if that was not recorded.
        ordinal: Option<u64>,
        /// First half of a successful `realloc`.
        realloc: bool,
    },
}

/// A mapping made or undone by the program itself (not by its allocator's inner calls).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEvent {
    /// Time of the event.
    pub time_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Thread that made the change.
    pub thread: ThreadIndex,
    /// Kind of change.
    pub kind: MapKind,
    /// First address (for [`MapKind::Remap`]: of the result).
    pub address: u64,
    /// Bytes (for [`MapKind::Remap`]: of the result).
    pub length: u64,
    /// For [`MapKind::Remap`], bytes of the mapping that it replaces.
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
    /// `shmat`: a System V segment.
    Attach,
    /// `shmdt`; of a length of 0 where it was attached before recording.
    Detach,
}

/// Exact totals of a process at one moment (every recording but `Off`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapTotals {
    /// Time when they were read.
    pub time_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of allocations so far.
    pub allocations: u64,
    /// Number of frees so far.
    pub frees: u64,
    /// Bytes that were asked for so far.
    pub allocated_bytes: u64,
    /// Live bytes; `None` if recording did not cover the whole life.
    pub live_bytes: Option<u64>,
    /// Highest live bytes so far.
    pub peak_bytes: Option<u64>,
    /// Time of the peak.
    pub peak_at_ns: Option<u64>,
}
