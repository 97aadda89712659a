//! What host threads did: spans, flows between them, samples of their stacks.

use super::ids::{NameId, ProcessIndex, StackId, ThreadIndex};

/// An interval of a host thread: a call, an operator, a named range.
///
/// Spans of one thread and kind nest; kinds may overlap each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// When it began.
    pub start_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// Its process.
    pub process: ProcessIndex,
    /// On which thread.
    pub thread: ThreadIndex,
    /// What it is.
    pub kind: SpanKind,
    /// Function, operator or range.
    pub name: NameId,
    /// NVTX domain; of an import, the category where `kind` does not imply it.
    pub category: NameId,
    /// Number that what this call started on a device carries too.
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
    /// What the call returned; 0 is success. None where it was not recorded.
    pub status: Option<u32>,
    /// Where it was called; 0 if no stack was taken.
    pub stack: StackId,
    /// Everything else that was known of it, as a JSON object; 0 if nothing.
    pub args: NameId,
    /// Allocations of its thread within it, as the thread counted them
    /// ([`super::MemoryRecording::Sampled`]), or of what is recorded
    /// ([`super::MemoryRecording::Exact`]), by the order of its records: their times may be
    /// the same as the span's.
    pub allocations: Option<u64>,
    /// Bytes asked for by those.
    pub allocated_bytes: Option<u64>,
}

/// Category of spans that a program names itself, by the table `tprof_abi`.
pub const OWN_SPANS: &str = "tprof";

/// What of a [`Span`] a program named itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedSpan {
    /// When it began.
    pub start_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// Its process.
    pub process: ProcessIndex,
    /// On which thread.
    pub thread: ThreadIndex,
    /// What it is.
    pub kind: SpanKind,
    /// Range.
    pub name: NameId,
    /// [`OWN_SPANS`] of a program's own.
    pub category: NameId,
    /// Everything else that was known of it, as a JSON object; 0 if nothing.
    pub args: NameId,
    /// See [`Span`].
    pub allocations: Option<u64>,
    /// See [`Span`].
    pub allocated_bytes: Option<u64>,
}

/// The part of a [`Span`] that shows where it was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallStack {
    /// When it began.
    pub start_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// The process that made the call.
    pub process: ProcessIndex,
    /// The thread that made the call.
    pub thread: ThreadIndex,
    /// What sort of span it is.
    pub kind: SpanKind,
    /// Where it was called; 0 if no stack was taken.
    pub stack: StackId,
}

/// What of a [`Span`] shows how a call of a library ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallStatus {
    /// When it began.
    pub start_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// The process that made the call.
    pub process: ProcessIndex,
    /// The thread that made the call.
    pub thread: ThreadIndex,
    /// What sort of span it is.
    pub kind: SpanKind,
    /// The function that was called.
    pub name: NameId,
    /// Library where `kind` does not imply it.
    pub category: NameId,
    /// What it returned; 0 is success. None where it was not recorded.
    pub status: Option<u32>,
    /// Where it was called; 0 if no stack was taken.
    pub stack: StackId,
    /// Everything else that was known of it, as a JSON object; 0 if nothing.
    pub args: NameId,
}

/// What of a [`Span`] joins forward operators and backward ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequencedSpan {
    /// When it began.
    pub start_ns: u64,
    /// On which thread.
    pub thread: ThreadIndex,
    /// What it is.
    pub kind: SpanKind,
    /// Operator.
    pub name: NameId,
    /// See [`Span`].
    pub sequence: Option<u64>,
}

/// What of a [`Span`] most analyses ask for; the other columns are not even decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanOutline {
    /// When it began.
    pub start_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// Its process.
    pub process: ProcessIndex,
    /// On which thread.
    pub thread: ThreadIndex,
    /// What it is.
    pub kind: SpanKind,
    /// Function, operator or range.
    pub name: NameId,
    /// NVTX domain; of an import, the category where `kind` does not imply it.
    pub category: NameId,
    /// Number that what this call started on a device carries too.
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
    /// Anything else.
    #[default]
    Other = 7,
}

/// One end of an arrow between spans, or from a span to what it caused elsewhere.
///
/// Arrows from a launch to its kernel are not listed: their correlation has the same content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowPoint {
    /// When; it lies within the span that it belongs to.
    pub time_ns: u64,
    /// Its process.
    pub process: ProcessIndex,
    /// Thread of the span; none if it lies on a device.
    pub thread: Option<ThreadIndex>,
    /// Device and stream of what it points at, if that lies on a device.
    pub device: Option<u32>,
    /// Stream, see `device`.
    pub stream: Option<u64>,
    /// Which end.
    pub end: FlowEnd,
    /// Number of the arrow, unique within its category.
    pub id: u64,
    /// Category (Kineto: `fwdbwd`, `ac2g`).
    pub category: NameId,
    /// Name.
    pub name: NameId,
}

/// Ends of an arrow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum FlowEnd {
    /// It starts here.
    #[default]
    Start = 0,
    /// It passes through.
    Step = 1,
    /// It ends here.
    End = 2,
}

/// What the kernel counted of a thread, at its end or the recording's. Absent
/// numbers are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadCounts {
    /// When.
    pub time_ns: u64,
    /// Its process.
    pub process: ProcessIndex,
    /// Which thread.
    pub thread: ThreadIndex,
    /// It left its core to wait.
    pub voluntary: Option<u64>,
    /// It left its core although it could have gone on.
    pub involuntary: Option<u64>,
    /// It came back on another core.
    pub migrations: Option<u64>,
    /// Pages that it touched first, and that were in memory.
    pub minor_faults: Option<u64>,
    /// Pages that it touched and that had to be read.
    pub major_faults: Option<u64>,
}

/// A stack of a thread at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub time_ns: u64,
    /// Its process.
    pub process: ProcessIndex,
    /// Which thread.
    pub thread: ThreadIndex,
    /// What it was doing; 0 if no stack could be taken.
    pub stack: StackId,
    /// Time that it stands for: the sampling period, or the length of the wait.
    pub weight_ns: u64,
    /// On a core, or why not.
    pub state: ThreadState,
    /// Processor, where that is known.
    pub cpu: Option<u32>,
    /// Whether the thread held Python's global lock, where that is known.
    pub gil: Option<bool>,
    /// Of several stretches that were added up: from the first one's beginning to the last one's
    /// end. None: it is one stretch, from `time_ns` on.
    pub spread_ns: Option<u64>,
}

/// The part of a [`Sample`] that shows what its thread did at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleMoment {
    /// When it began.
    pub time_ns: u64,
    /// Its process.
    pub process: ProcessIndex,
    /// Which thread.
    pub thread: ThreadIndex,
    /// What it was doing; 0 if no stack could be taken.
    pub stack: StackId,
    /// Time that it stands for.
    pub weight_ns: u64,
    /// On a core, or why not.
    pub state: ThreadState,
}

/// The part of a [`Sample`] that shows whether its thread was on a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleOutline {
    /// What it was doing; 0 if no stack could be taken.
    pub stack: StackId,
    /// On a core, or why not.
    pub state: ThreadState,
}

/// So many events of a kind, since the last row of that kind and thread: cycles,
/// cache misses, page faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSample {
    /// When the last of them was counted.
    pub time_ns: u64,
    /// Its process.
    pub process: ProcessIndex,
    /// Which thread.
    pub thread: ThreadIndex,
    /// Where the last one happened: only the innermost frame; 0 if not known.
    pub stack: StackId,
    /// Kind, as `perf list` calls it.
    pub event: NameId,
    /// How many.
    pub count: u64,
}

/// What a thread was doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ThreadState {
    /// On a core.
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
    /// Whether a row of the samples table in this state is a CPU sample: others are waits,
    /// or time on a core that no sample stands for.
    pub(crate) fn is_cpu_sample(self, stack: StackId) -> bool {
        self == ThreadState::Running && stack != 0
    }
}
