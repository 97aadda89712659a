//! Records of perf events that wait until all earlier records have been read.

use super::super::blocked::BlockedThread;
use super::super::counters::Purpose;
use super::super::sample::Frame;
use crate::config::PerfEvent;
use crate::os::maps::Mapping;
use crate::perf::record::{Origin, Registers};
use crate::python::PyStack;
use rustc_hash::FxHashSet;

/// A record that waits until all earlier records have been read.
pub struct QueuedRecord {
    pub origin: Origin,
    pub what: QueuedEvent,
}

/// Returns the threads that came back to a processor according to these records.
pub fn resumed_threads(waiting: &[QueuedRecord]) -> FxHashSet<u32> {
    let came = |one: &&QueuedRecord| matches!(one.what, QueuedEvent::Came);
    waiting.iter().filter(came).map(|one| one.origin.tid).collect()
}

/// What a record says.
pub enum QueuedEvent {
    Sample {
        purpose: Purpose,
        chain: Vec<u8>,
        registers: Option<Registers>,
        stack: Box<[u8]>,
        python: Option<PyStack>,
        /// Whether the sampler has already tried to read the Python frames.
        asked: bool,
    },
    Events {
        event: PerfEvent,
        frame: Frame,
        count: u64,
    },
    Mapped(u32, Mapping),
    Named {
        pid: u32,
        tid: u32,
        name: String,
        exec: bool,
    },
    Began {
        pid: u32,
        parent: u32,
    },
    /// A thread began in an existing process.
    Started {
        tid: u32,
    },
    Ended {
        pid: u32,
        tid: u32,
    },
    /// A thread left its processor.
    Left {
        preempted: bool,
        /// What was read of the thread's wait, if that was done while the record was queued.
        reading: Option<Box<WaitReading>>,
    },
    /// A thread came back to a processor.
    Came,
}

/// The part of a wait's place that can be read only during the wait. The native frames are found
/// later, from the copied stack.
pub struct WaitReading {
    pub blocked: BlockedThread,
    pub python: Option<PyStack>,
    /// A frame that names the file that the thread waits for.
    pub file: Option<Frame>,
}
