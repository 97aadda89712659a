//! Measures the bytes that a process read and wrote while it was recorded, by the kernel's counters
//! of the process.

use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, counter};

use super::gauges::process_samples;

/// Bytes that a process transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Bytes that calls such as `read` returned from files, pipes and sockets, no matter whether
    /// they came from memory or storage.
    pub read: u64,
    /// Bytes that it wrote, to caches too.
    pub written: u64,
    /// Bytes that were read from storage for it.
    pub storage_read: u64,
    /// Bytes that it caused to be written to storage.
    pub storage_written: u64,
}

/// Measures a process from its first reading, when it attached, to its last. Transfers after the
/// last reading, which take up to one interval, are missing. Returns `None` if transfers were not
/// counted, or no change of them was read.
pub fn of_process(file: &TraceFile, process: ProcessIndex) -> Option<Transfers> {
    let of = |name| {
        let samples = process_samples(file, name);
        let mut of_process = samples.iter().filter(|(_, of, _)| *of == process);
        let first = of_process.next()?.2;
        let last = of_process.next_back().map_or(first, |sample| sample.2);
        Some(last.saturating_sub(first))
    };
    let transfers = Transfers {
        read: of(counter::READ_BYTES)?,
        written: of(counter::WRITTEN_BYTES)?,
        storage_read: of(counter::STORAGE_READ_BYTES)?,
        storage_written: of(counter::STORAGE_WRITTEN_BYTES)?,
    };
    // A value is written when it changes: one alone may be all that was read of a short process.
    (transfers != Transfers::default()).then_some(transfers)
}
