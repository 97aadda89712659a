//! Processes and threads.

use super::ids::{NameId, ProcessIndex, ThreadIndex};

/// One image of a process; an `exec` begins another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Index of this row.
    pub process: ProcessIndex,
    /// Process id on the host.
    pub pid: u32,
    /// Parent's process id.
    pub parent: u32,
    /// Rank that the environment named, or that was inherited.
    pub rank: Option<u32>,
    /// Command line, joined by spaces; only the program's base name under `--redact`.
    pub command: NameId,
    /// Executable's path; empty under `--redact`.
    pub exe: NameId,
    /// Time when it attached.
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
    /// Exact counters, stacks sampled by bytes with this mean interval.
    Sampled {
        /// Mean bytes between samples.
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
    /// Killed by this signal.
    Signal(i32),
    /// Replaced by another image.
    Exec,
    /// Gone; how is unknown.
    Unknown,
}

/// A thread of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Index of this row.
    pub thread: ThreadIndex,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Thread id inside the target.
    pub tid: u32,
    /// Time when its first event was recorded.
    pub start_ns: u64,
}
