//! The work of host threads: spans, flows between them, samples of their stacks.

use super::ids::{NameId, ProcessIndex, StackId, ThreadIndex};

/// An interval of a host thread: a call, an operator, a named range.
///
/// Spans of one thread and kind nest; kinds may overlap each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Time when it began.
    pub start_ns: u64,
    /// Duration of the span.
    pub duration_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Index of the thread.
    pub thread: ThreadIndex,
    /// Kind of the span.
    pub kind: SpanKind,
    /// Function, operator or range.
    pub name: NameId,
    /// NVTX domain; of an import, the category where `kind` does not imply it.
    pub category: NameId,
    /// Number that the call shares with the work it started on a device.
    pub correlation: Option<u64>,
    /// Number that joins a call to the operator around it (Kineto's `External id`).
    pub external: Option<u64>,
    /// Number of this span, where others refer to it (Kineto's `Python id`).
    pub id: Option<u64>,
    /// Number of the span that called it (Kineto's `Python parent id`).
    pub parent: Option<u64>,
    /// Autograd's sequence number: the same in a forward operator and its backward one.
    pub sequence: Option<u64>,
    /// Thread on which the forward operator of this backward one ran.
    pub forward_thread: Option<u64>,
    /// Result of the call; 0 is success. `None` where it was not recorded.
    pub status: Option<u32>,
    /// Stack of the call; 0 if no stack was taken.
    pub stack: StackId,
    /// Everything else that was known of it, as a JSON object; 0 if nothing.
    pub args: NameId,
    /// Allocations of its thread within it: as the thread counted them
    /// ([`super::MemoryRecording::Sampled`]), or counted from the recorded ones
    /// ([`super::MemoryRecording::Exact`]) in the order of its records, since their times may be
    /// the same as the span's.
    pub allocations: Option<u64>,
    /// Bytes asked for by those.
    pub allocated_bytes: Option<u64>,
}

/// Category of spans that a program names itself, by the table `tprof_abi`.
pub const OWN_SPANS: &str = "tprof";

/// The columns of a [`Span`] that the program named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedSpan {
    /// Time when it began.
    pub start_ns: u64,
    /// Duration of the span.
    pub duration_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Index of the thread.
    pub thread: ThreadIndex,
    /// Kind of the span.
    pub kind: SpanKind,
    /// Name of the range.
    pub name: NameId,
    /// [`OWN_SPANS`] of a program's own.
    pub category: NameId,
    /// Everything else that was known of it, as a JSON object; 0 if nothing.
    pub args: NameId,
    /// Number of allocations; see [`Span`].
    pub allocations: Option<u64>,
    /// Allocated bytes; see [`Span`].
    pub allocated_bytes: Option<u64>,
}

/// The part of a [`Span`] that shows where it was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallStack {
    /// Time when it began.
    pub start_ns: u64,
    /// Duration of the call.
    pub duration_ns: u64,
    /// The process that made the call.
    pub process: ProcessIndex,
    /// The thread that made the call.
    pub thread: ThreadIndex,
    /// Kind of the span.
    pub kind: SpanKind,
    /// Stack of the call; 0 if no stack was taken.
    pub stack: StackId,
}

/// The columns of a [`Span`] that show how a call of a library ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallStatus {
    /// Time when it began.
    pub start_ns: u64,
    /// Duration of the call.
    pub duration_ns: u64,
    /// The process that made the call.
    pub process: ProcessIndex,
    /// The thread that made the call.
    pub thread: ThreadIndex,
    /// Kind of the span.
    pub kind: SpanKind,
    /// The function that was called.
    pub name: NameId,
    /// Library where `kind` does not imply it.
    pub category: NameId,
    /// Result of the call; 0 is success. `None` where it was not recorded.
    pub status: Option<u32>,
    /// Stack of the call; 0 if no stack was taken.
    pub stack: StackId,
    /// Everything else that was known of it, as a JSON object; 0 if nothing.
    pub args: NameId,
}

/// The columns of a [`Span`] that join forward operators to backward ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequencedSpan {
    /// Time when it began.
    pub start_ns: u64,
    /// Index of the thread.
    pub thread: ThreadIndex,
    /// Kind of the span.
    pub kind: SpanKind,
    /// Name of the operator.
    pub name: NameId,
    /// Sequence number; see [`Span`].
    pub sequence: Option<u64>,
}

/// The columns of a [`Span`] that most analyses need; the others are not even decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanOutline {
    /// Time when it began.
    pub start_ns: u64,
    /// Duration of the span.
    pub duration_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Index of the thread.
    pub thread: ThreadIndex,
    /// Kind of the span.
    pub kind: SpanKind,
    /// Function, operator or range.
    pub name: NameId,
    /// NVTX domain; of an import, the category where `kind` does not imply it.
    pub category: NameId,
    /// Number that the call shares with the work it started on a device.
    pub correlation: Option<u64>,
    /// Everything else that was known of it, as a JSON object; 0 if nothing.
    pub args: NameId,
}

/// Kinds of spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SpanKind {
    /// A call of the CUDA or HIP runtime.
    Runtime = 0,
    /// A call of the CUDA driver.
    Driver = 1,
    /// An operator of a framework.
    Operator = 2,
    /// A range that the framework or its user named (`record_function`, `ProfilerStep#5`).
    Annotation = 3,
    /// An NVTX range.
    Nvtx = 4,
    /// A Python function.
    Python = 5,
    /// Time that a profiler itself took.
    Overhead = 6,
    /// Any other span.
    #[default]
    Other = 7,
}

/// One end of an arrow between spans, or from a span to what it caused elsewhere.
///
/// Arrows from a launch to its kernel are not listed, since their correlation says the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowPoint {
    /// Time of this end, within the span that it belongs to.
    pub time_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Thread of the span; `None` if it is on a device.
    pub thread: Option<ThreadIndex>,
    /// Device of what it points at, if that is on a device.
    pub device: Option<u32>,
    /// Stream, see `device`.
    pub stream: Option<u64>,
    /// Which end of the arrow.
    pub end: FlowEnd,
    /// Number of the arrow, unique within its category.
    pub id: u64,
    /// Category (Kineto: `fwdbwd`, `ac2g`).
    pub category: NameId,
    /// Name of the arrow.
    pub name: NameId,
}

/// Ends of an arrow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum FlowEnd {
    /// The arrow starts here.
    #[default]
    Start = 0,
    /// The arrow passes through.
    Step = 1,
    /// The arrow ends here.
    End = 2,
}

/// The kernel's counts for a thread, at its end or at the end of the recording. Absent numbers are
/// unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadCounts {
    /// Time of the reading.
    pub time_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Index of the thread.
    pub thread: ThreadIndex,
    /// Times that it left its core to wait.
    pub voluntary: Option<u64>,
    /// Times that it left its core although it could have gone on.
    pub involuntary: Option<u64>,
    /// Times that it came back on another core.
    pub migrations: Option<u64>,
    /// Pages that it touched first, and that were in memory.
    pub minor_faults: Option<u64>,
    /// Pages that it touched and that had to be read.
    pub major_faults: Option<u64>,
}

/// A stack of a thread at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Time of the sample.
    pub time_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Index of the thread.
    pub thread: ThreadIndex,
    /// Stack of the thread; 0 if no stack could be taken.
    pub stack: StackId,
    /// Time that the sample covers: the sampling period, or the length of the wait.
    pub weight_ns: u64,
    /// Whether it was on a core, or why not.
    pub state: ThreadState,
    /// Processor, where that is known.
    pub cpu: Option<u32>,
    /// Whether the thread held Python's global lock, where that is known.
    pub gil: Option<bool>,
    /// For several intervals that were added up, the time from the beginning of the first to the
    /// end of the last. `None` if it is one interval, from `time_ns` on.
    pub spread_ns: Option<u64>,
}

/// The part of a [`Sample`] that shows what its thread did at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleMoment {
    /// Time when it began.
    pub time_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Index of the thread.
    pub thread: ThreadIndex,
    /// Stack of the thread; 0 if no stack could be taken.
    pub stack: StackId,
    /// Time that the sample covers.
    pub weight_ns: u64,
    /// Whether it was on a core, or why not.
    pub state: ThreadState,
}

/// The part of a [`Sample`] that shows whether its thread was on a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleOutline {
    /// Stack of the thread; 0 if no stack could be taken.
    pub stack: StackId,
    /// Whether it was on a core, or why not.
    pub state: ThreadState,
}

/// A number of events of one kind (cycles, cache misses, page faults) since the last row of that
/// kind and thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSample {
    /// Time when the last of them was counted.
    pub time_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Index of the thread.
    pub thread: ThreadIndex,
    /// Place of the last one, only the innermost frame; 0 if not known.
    pub stack: StackId,
    /// Kind, as `perf list` calls it.
    pub event: NameId,
    /// Number of events.
    pub count: u64,
}

/// The state of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ThreadState {
    /// Running on a core.
    #[default]
    Running = 0,
    /// Ready, but no core was free.
    Runnable = 1,
    /// Off its core for an unknown reason.
    Blocked = 2,
    /// Waiting for a lock or a condition.
    Lock = 3,
    /// Waiting for a file, a pipe or the network.
    Io = 4,
    /// Sleeping for a time that it asked for.
    Sleep = 5,
    /// Waiting for one of several events.
    Poll = 6,
    /// Waiting for Python's global lock.
    Gil = 7,
    /// Waiting for a device.
    Device = 8,
}

impl ThreadState {
    /// Whether a row of the samples table in this state is a CPU sample: others are waits, or time
    /// on a core that no sample covers.
    pub(crate) fn is_cpu_sample(self, stack: StackId) -> bool {
        self == ThreadState::Running && stack != 0
    }
}
