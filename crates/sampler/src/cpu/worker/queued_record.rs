//! Records from the rings of perf events. Each ring is in order of time, but the sampler reads one
//! ring after another. A record is queued until all rings have been read up to its time, so that
//! the records of all rings can be handled in order of time.

use super::super::blocked::BlockedThread;
use super::super::counters::Purpose;
use super::super::sample::Frame;
use crate::config::PerfEvent;
use crate::perf::record::{Origin, Registers};
use crate::python::PyStack;
use rustc_hash::FxHashSet;
use tprof_os::maps::Mapping;

/// A record of a perf event that waits until all earlier records have been read.
pub struct QueuedRecord {
    pub origin: Origin,
    pub what: QueuedEvent,
}

/// Returns the threads that came back to a processor according to these records.
pub fn resumed_threads(waiting: &[QueuedRecord]) -> FxHashSet<u32> {
    let resumes = |record: &&QueuedRecord| matches!(record.what, QueuedEvent::SwitchedIn);
    waiting.iter().filter(resumes).map(|record| record.origin.tid).collect()
}

/// What a record says, apart from its [`Origin`].
pub enum QueuedEvent {
    /// A sample of a thread's stack.
    Sample {
        purpose: Purpose,
        /// The frames that the kernel found, as the record has them.
        chain: Vec<u8>,
        registers: Option<Registers>,
        /// The top of the stack, as a copy from which native frames are unwound later.
        stack: Box<[u8]>,
        /// The Python frames, once they have been read.
        python: Option<PyStack>,
        /// Whether the sampler has already tried to read the Python frames.
        is_python_tried: bool,
    },
    /// A counter counted events of the processor or kernel.
    Events {
        event: PerfEvent,
        /// Where the last of the events happened.
        frame: Frame,
        /// Number of events since the counter's previous record.
        count: u64,
    },
    /// The process with this pid mapped code.
    Mapped(u32, Mapping),
    /// A thread got a name.
    Named {
        pid: u32,
        tid: u32,
        name: String,
        /// Whether the thread got the name by an `exec`, so that a new image began.
        exec: bool,
    },
    /// A process was forked.
    Forked { pid: u32, parent: u32 },
    /// A thread began in an existing process.
    ThreadBegan { tid: u32 },
    /// A thread ended, and the process with it if it was the last thread.
    Ended { pid: u32, tid: u32 },
    /// A thread left its processor.
    SwitchedOut {
        preempted: bool,
        /// What was read about the thread's wait, if the thread was inspected while the record was
        /// queued.
        reading: Option<Box<WaitReading>>,
    },
    /// A thread came back to a processor.
    SwitchedIn,
}

/// What must be read while a thread waits in order to know where it waits. The native frames are
/// unwound later, from the copy of the stack in `blocked`.
pub struct WaitReading {
    pub blocked: BlockedThread,
    pub python: Option<PyStack>,
    /// A frame that names the file that the thread waits for.
    pub file: Option<Frame>,
}
