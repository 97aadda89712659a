//! Compares the bytes of the recorded calls with those that the kernel counted for the processes.
//!
//! Calls that libc makes itself (`printf`, `getline`) and direct system calls (`io_uring`, Go) are
//! not hooked. The kernel counts the bytes of them too. It counts a process from the reading when
//! the process attached, so small differences mean nothing. It leaves out bytes that `send` and
//! `recv` transfer, which recorded calls have, so what is missing is at least the difference.

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::model::{FileCalls, FileOperation, ProcessIndex};

use crate::memory::transfers::of_process;

/// Bytes of a rank's processes that transferred any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// Bytes that the kernel counted as read by calls; `None` if it wasn't asked.
    pub read: Option<u64>,
    /// Bytes that recorded calls of those processes read.
    pub recorded_read: u64,
    /// Bytes that the kernel counted as written by calls; `None` if it wasn't asked.
    pub written: Option<u64>,
    /// Bytes that recorded calls of those processes wrote.
    pub recorded_written: u64,
}

impl Unseen {
    /// Compares them for the processes of a file.
    pub(super) fn of(file: &TraceFile) -> Unseen {
        let mut recorded: FxHashMap<ProcessIndex, [u64; 2]> = FxHashMap::default();
        for row in file.blocks::<FileCalls>().flatten() {
            let at = match row.operation {
                FileOperation::Read => 0,
                FileOperation::Write => 1,
                _ => continue,
            };
            recorded.entry(row.process).or_default()[at] += row.bytes;
        }
        let mut sums = Unseen::default();
        for process in file.processes() {
            let Some(kernel) = of_process(file, process.process) else { continue };
            let [read, written] = recorded.get(&process.process).copied().unwrap_or_default();
            *sums.read.get_or_insert(0) += kernel.read;
            *sums.written.get_or_insert(0) += kernel.written;
            sums.recorded_read += read;
            sums.recorded_written += written;
        }
        sums
    }
}
