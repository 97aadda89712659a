//! Defines the trace model: a few tables with interned names and stacks, and times in integer
//! nanoseconds.
//!
//! Times are absolute nanoseconds on the run's one clock (CLOCK_MONOTONIC of the host). For
//! display, times count from [`crate::run::RunInfo::start_ns`].

mod caching_allocator;
mod code;
mod comm;
mod device;
mod file_calls;
mod heap;
mod history;
mod ids;
mod measured;
mod notes;
mod process;
mod span;

pub use caching_allocator::{AllocatorBlock, AllocatorEvent, AllocatorSegment};
pub use code::{Module, SYNTHETIC_FRAME, Stack, Symbol};
pub use comm::{ChannelWork, ChannelWorkKind, Collective, Communicator, Connection};
pub use device::{
    Allocator, ClockJoin, CopyKind, Device, DeviceAllocation, DeviceSpan, DeviceSpanKind,
    ExternalId, ExternalKind, Kernel, KernelOutline, KernelShape, KernelStall, MemoryCopy,
    MemoryKind, Stream, SyncKind, Synchronization,
};
pub use file_calls::{FileCalls, FileKind, FileOperation};
pub use heap::{HeapChange, HeapEvent, HeapTotals, MapEvent, MapKind};
pub use history::{HistoryRow, HistorySource};
pub use ids::{NameId, ProcessIndex, StackId, ThreadIndex};
pub use measured::{Counter, RecordingTotals, counter};
pub use notes::{HISTOGRAM_SEPARATOR, Loss, Mark, MarkKind, Property, SourceStamp, loss, property};
pub use process::{MemoryRecording, Process, ProcessEnd, Thread};
pub use span::{
    CallStack, CallStatus, EventSample, FlowEnd, FlowPoint, NamedSpan, OWN_SPANS, Sample,
    SampleMoment, SampleOutline, SequencedSpan, Span, SpanKind, SpanOutline, ThreadCounts,
    ThreadState,
};
