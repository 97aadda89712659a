//! Defines rows for processes and threads.

use super::ids::{NameId, ProcessIndex, ThreadIndex};

/// One image of a process. An `exec` begins another image.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Index of this row.
    pub process: ProcessIndex,
    /// Pid on the host.
    pub pid: u32,
    /// Pid of the parent process.
    pub parent: u32,
    /// Rank that the environment named, or that the process inherited.
    pub rank: Option<u32>,
    /// Command line, joined by spaces; only the program's base name under `--redact`.
    pub command: NameId,
    /// Path of the executable; empty under `--redact`.
    pub exe: NameId,
    /// Time when the image attached.
    pub start_ns: u64,
    /// How allocations were recorded.
    pub memory: MemoryRecording,
}

/// How allocations of a process were recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryRecording {
    /// Allocations were not recorded (`--mem off`, or the process could not be recorded).
    #[default]
    Off,
    /// Counters are exact. Stacks are sampled by allocated bytes, with this mean interval.
    Sampled {
        /// Mean number of bytes between samples.
        interval: u64,
    },
    /// Every allocation was recorded.
    Exact,
}

/// How a process image ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// The process exited with this status.
    Exited(i32),
    /// This signal killed the process.
    Signal(i32),
    /// An `exec` replaced the image.
    Exec,
    /// The process is gone, and it isn't known how it ended.
    Unknown,
}

/// A thread of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Index of this row.
    pub thread: ThreadIndex,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Thread id as the target process sees it.
    pub tid: u32,
    /// Time of the thread's first recorded event.
    pub start_ns: u64,
}
