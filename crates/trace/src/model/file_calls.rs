//! Defines the rows of calls on files, pipes and sockets.

use super::{NameId, ProcessIndex, StackId, ThreadIndex};

/// What a descriptor stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// It is unknown.
    #[default]
    Unknown,
    /// A file or directory with a path.
    File,
    /// A socket of any family.
    Socket,
    /// A pipe or FIFO without a path.
    Pipe,
    /// A device, or a file that the kernel makes up (`/dev`, `/proc`, `/sys`).
    Device,
}

/// What calls did with a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileOperation {
    /// Opened it by its path.
    #[default]
    Open,
    /// Read from it, or received.
    Read,
    /// Wrote to it, or sent.
    Write,
    /// Waited until what was written is on the disk.
    Sync,
    /// Mapped it into memory. The bytes are those of the mapping, of which pages are read later.
    Map,
    /// Connected to it.
    Connect,
    /// Closed a descriptor of it.
    Close,
    /// Accepted a connection from it.
    Accept,
    /// Page faults of a thread read from storage. They aren't calls, and their file is unknown.
    Fault,
}

/// Calls of one thread on one file, in a short time: one call that took long, or several that
/// followed each other within 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCalls {
    /// Start of the first call.
    pub start_ns: u64,
    /// Time from the start of the first call to the end of the last.
    pub duration_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Index of the thread.
    pub thread: ThreadIndex,
    /// What the file is.
    pub kind: FileKind,
    /// Path of the file; `DIRECTORY/*.EXTENSION` for files of a directory of which too many were
    /// opened; a socket's peer; empty if it is unknown.
    pub file: NameId,
    /// The file system: its type, mount point and source, as in `nfs4 at /data (server:/export)`;
    /// empty if it is unknown or the file has none.
    pub file_system: NameId,
    /// What the calls did.
    pub operation: FileOperation,
    /// Number of calls.
    pub calls: u64,
    /// How many of them failed, for example because a socket had nothing to read yet.
    pub failed: u64,
    /// Bytes that the calls transferred, or mapped.
    pub bytes: u64,
    /// Time in the calls, summed.
    pub busy_ns: u64,
    /// Time of the longest call.
    pub longest_ns: u64,
    /// How many calls began elsewhere in the file than the call before them ended.
    pub jumps: u64,
    /// Bytes that the kernel read from storage for the thread meanwhile, by the thread's counter
    /// and in proportion to the bytes of its rows; `None` if the counter couldn't be read,
    /// or doesn't count what is read from this file system.
    pub storage_bytes: Option<u64>,
    /// Stack of one of the calls; 0 if none was taken.
    pub stack: StackId,
}
