//! Compares the bytes of the recorded calls with those that the kernel counted for the processes.
//!
//! Calls that libc makes itself (`printf`, `getline`) and direct system calls (Go) are
//! not hooked. The kernel counts the bytes of them too. It counts a process from the reading when
//! the process attached, so small differences mean nothing. It leaves out bytes that `send` and
//! `recv` transfer, which recorded calls have, so what is missing is at least the difference.

use tprof_trace::TraceFile;
use tprof_trace::model::{FileCalls, FileOperation};

use crate::memory::transfers::of_process;

/// Bytes of a rank's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// Bytes that the kernel counted as read by calls; `None` if it wasn't asked.
    pub read: Option<u64>,
    /// Bytes that recorded calls read.
    pub recorded_read: u64,
    /// Bytes that the kernel counted as written by calls; `None` if it wasn't asked.
    pub written: Option<u64>,
    /// Bytes that recorded calls wrote.
    pub recorded_written: u64,
}

impl Unseen {
    /// Compares them for the processes of a file.
    pub(super) fn of(file: &TraceFile) -> Unseen {
        let mut sums = Unseen::default();
        for row in file.blocks::<FileCalls>().flatten() {
            let sum = match row.operation {
                FileOperation::Read => &mut sums.recorded_read,
                FileOperation::Write => &mut sums.recorded_written,
                _ => continue,
            };
            *sum = sum.saturating_add(row.bytes);
        }
        for process in file.processes() {
            let Some(kernel) = of_process(file, process.process) else { continue };
            let add = |sum: Option<u64>, bytes| Some(sum.unwrap_or(0).saturating_add(bytes));
            sums.read = add(sums.read, kernel.read);
            sums.written = add(sums.written, kernel.written);
        }
        sums
    }
}
