//! Records of perf events that wait for their turn.

use super::super::blocked::BlockedThread;
use super::super::counters::Purpose;
use super::super::sample::Frame;
use crate::config::PerfEvent;
use crate::os::maps::Mapping;
use crate::perf::record::{Origin, Registers};
use crate::python::PyStack;
use rustc_hash::FxHashSet;

/// A record that waits for its turn.
pub struct QueuedRecord {
    pub origin: Origin,
    pub what: QueuedEvent,
}

/// Returns the threads that came back to a processor by these records.
pub fn resumed_threads(waiting: &[QueuedRecord]) -> FxHashSet<u32> {
    let came = |one: &&QueuedRecord| matches!(one.what, QueuedEvent::Came);
    waiting.iter().filter(came).map(|one| one.origin.tid).collect()
}

/// The content of a record.
pub enum QueuedEvent {
    Sample {
        purpose: Purpose,
        chain: Vec<u8>,
        registers: Option<Registers>,
        stack: Box<[u8]>,
        python: Option<PyStack>,
        /// Whether its Python frames were looked for.
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
        /// The reading of the thread's wait, if it was made before the record's turn came.
        reading: Option<Box<WaitReading>>,
    },
    /// A thread came back to a processor.
    Came,
}

/// The part of a wait's place that can only be read during the wait. Its frames can be found later.
pub struct WaitReading {
    pub blocked: BlockedThread,
    pub python: Option<PyStack>,
    /// The file that the thread waits for.
    pub file: Option<Frame>,
}
