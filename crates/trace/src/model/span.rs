//! Defines rows for the activity of host threads: spans, arrows between spans, and samples of
//! stacks.

use super::ids::{NameId, ProcessIndex, StackId, ThreadIndex};

/// An interval of a host thread: a call, an operator or a named range.
///
/// Spans of one thread and kind are nested. Spans of different kinds may overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Time when the span began.
    pub start_ns: u64,
    /// Duration of the span.
    pub duration_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Index of the thread.
    pub thread: ThreadIndex,
    /// Kind of the span.
    pub kind: SpanKind,
    /// Name of the function, operator or range.
    pub name: NameId,
    /// NVTX domain. In an import, the category, if `kind` doesn't imply it.
    pub category: NameId,
    /// Number that a call shares with the work that it started on a device.
    pub correlation: Option<u64>,
    /// Number that joins a call to the operator around it (Kineto's `External id`).
    pub external: Option<u64>,
    /// Number of this span, if other spans refer to it (Kineto's `Python id`).
    pub id: Option<u64>,
    /// Number of the calling span (Kineto's `Python parent id`).
    pub parent: Option<u64>,
    /// Autograd's sequence number, which a forward operator shares with its backward operator.
    pub sequence: Option<u64>,
    /// For a backward operator, the thread on which its forward operator ran.
    pub forward_thread: Option<u64>,
    /// Result of the call; 0 means success. `None` if it wasn't recorded.
    pub status: Option<u32>,
    /// Stack of the call; 0 if no stack was recorded.
    pub stack: StackId,
    /// Everything else that is known about the span, as a JSON object; 0 if nothing.
    pub args: NameId,
    /// Number of allocations by the span's thread within the span. With
    /// [`super::MemoryRecording::Sampled`], the thread counted them itself. With
    /// [`super::MemoryRecording::Exact`], tprof counts the allocations between the span's records
    /// in the order of the thread's records. It doesn't compare times, because an allocation may
    /// have the same time as the span's start or end.
    pub allocations: Option<u64>,
    /// Bytes that these allocations requested.
    pub allocated_bytes: Option<u64>,
}

/// Category of the spans that a program records itself through the table `tprof_abi`.
pub const OWN_SPANS: &str = "tprof";

/// The columns of a [`Span`] that describe a range that the program named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedSpan {
    /// Time when the span began.
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
    /// Category of the range; [`OWN_SPANS`] for a program's own spans.
    pub category: NameId,
    /// Everything else that is known about the span, as a JSON object; 0 if nothing.
    pub args: NameId,
    /// Number of allocations; see [`Span`].
    pub allocations: Option<u64>,
    /// Allocated bytes; see [`Span`].
    pub allocated_bytes: Option<u64>,
}

/// The columns of a [`Span`] that tell where in the code it was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallStack {
    /// Time when the span began.
    pub start_ns: u64,
    /// Duration of the call.
    pub duration_ns: u64,
    /// The process that made the call.
    pub process: ProcessIndex,
    /// The thread that made the call.
    pub thread: ThreadIndex,
    /// Kind of the span.
    pub kind: SpanKind,
    /// Stack of the call; 0 if no stack was recorded.
    pub stack: StackId,
}

/// The columns of a [`Span`] that tell how a library call ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallStatus {
    /// Time when the span began.
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
    /// Library, if `kind` doesn't imply it.
    pub category: NameId,
    /// Result of the call; 0 means success. `None` if it wasn't recorded.
    pub status: Option<u32>,
    /// Stack of the call; 0 if no stack was recorded.
    pub stack: StackId,
    /// Everything else that is known about the span, as a JSON object; 0 if nothing.
    pub args: NameId,
}

/// The columns of a [`Span`] that join forward operators with backward operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequencedSpan {
    /// Time when the span began.
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

/// The columns of a [`Span`] that most analyses need. The other columns aren't decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanOutline {
    /// Time when the span began.
    pub start_ns: u64,
    /// Duration of the span.
    pub duration_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Index of the thread.
    pub thread: ThreadIndex,
    /// Kind of the span.
    pub kind: SpanKind,
    /// Name of the function, operator or range.
    pub name: NameId,
    /// NVTX domain. In an import, the category, if `kind` doesn't imply it.
    pub category: NameId,
    /// Number that a call shares with the work that it started on a device.
    pub correlation: Option<u64>,
    /// Everything else that is known about the span, as a JSON object; 0 if nothing.
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
    /// Time that a profiler itself used.
    Overhead = 6,
    /// Any other span.
    #[default]
    Other = 7,
}

/// One end of an arrow between spans, or from a span to something that it caused elsewhere.
///
/// Arrows from a launch to its kernel aren't listed, because the correlation already joins them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowPoint {
    /// Time of this end, which lies within its span.
    pub time_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Thread of the span; `None` if this end is on a device.
    pub thread: Option<ThreadIndex>,
    /// Number of the device, if this end is on one.
    pub device: Option<u32>,
    /// Number of the stream, if this end is on a device.
    pub stream: Option<u64>,
    /// Which end of the arrow this is.
    pub end: FlowEnd,
    /// Number of the arrow, which is unique within its category.
    pub id: u64,
    /// Category of the arrow (Kineto: `fwdbwd`, `ac2g`).
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

/// The operating system's counts for a thread. They are read when the thread ends or the recording
/// ends. `None` means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadCounts {
    /// Time of the reading.
    pub time_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Index of the thread.
    pub thread: ThreadIndex,
    /// How often the thread left its core to wait.
    pub voluntary: Option<u64>,
    /// How often the thread left its core although it could have continued.
    pub involuntary: Option<u64>,
    /// How often the thread continued on another core.
    pub migrations: Option<u64>,
    /// Number of page faults on pages that were already in memory.
    pub minor_faults: Option<u64>,
    /// Number of page faults on pages that had to be read.
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
    /// Whether the thread was on a core, or why not.
    pub state: ThreadState,
    /// Number of the processor, if known.
    pub cpu: Option<u32>,
    /// Whether the thread held Python's global lock, if known.
    pub gil: Option<bool>,
    /// If the row sums up several intervals, the time from the beginning of the first to the end of
    /// the last. `None` for a single interval, which begins at `time_ns`.
    pub spread_ns: Option<u64>,
}

/// The columns of a [`Sample`] that tell what its thread did at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleMoment {
    /// Time of the sample, or the beginning of the wait.
    pub time_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Index of the thread.
    pub thread: ThreadIndex,
    /// Stack of the thread; 0 if no stack could be taken.
    pub stack: StackId,
    /// Time that the sample covers.
    pub weight_ns: u64,
    /// Whether the thread was on a core, or why not.
    pub state: ThreadState,
}

/// The columns of a [`Sample`] that tell whether its thread was on a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleOutline {
    /// Stack of the thread; 0 if no stack could be taken.
    pub stack: StackId,
    /// Whether the thread was on a core, or why not.
    pub state: ThreadState,
}

/// The number of hardware or kernel events of one kind (cycles, cache misses, page faults) since
/// the previous row of the same kind and thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSample {
    /// Time when the last of these events was counted.
    pub time_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Index of the thread.
    pub thread: ThreadIndex,
    /// Stack at the last event, with only the innermost frame; 0 if it isn't known.
    pub stack: StackId,
    /// Kind of the events, by the name that `perf list` uses.
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
    /// Sleeping for a time that the thread asked for.
    Sleep = 5,
    /// Waiting for one of several events.
    Poll = 6,
    /// Waiting for Python's global lock.
    Gil = 7,
    /// Waiting for a device.
    Device = 8,
}

impl ThreadState {
    /// Whether a row of the samples table in this state is a CPU sample. Other rows are waits, or
    /// time on a core without a sample.
    pub(crate) fn is_cpu_sample(self, stack: StackId) -> bool {
        self == ThreadState::Running && stack != 0
    }
}
