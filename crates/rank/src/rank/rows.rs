//! Defines the rows that analyses keep in memory, with only the fields that analyses need.
//!
//! A kernel's row in the trace model takes three hundred bytes, and most of them are needed only by
//! exports. Ten million rows must fit in memory, so a row here is a fifth of that size. Small rows
//! also save time, because the first access to each page of memory takes one or two microseconds.

use std::fmt;

use tprof_facts::Class;
use tprof_trace::model::{
    CopyKind, KernelOutline, MemoryCopy, MemoryKind, NameId, ProcessIndex, SpanKind, SpanOutline,
    ThreadIndex,
};

use crate::base::intervals::Interval;

/// A number that may be unknown, in eight bytes (an `Option<u64>` takes sixteen). The largest `u64`
/// stands for unknown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MaybeNumber(u64);

impl MaybeNumber {
    /// The unknown value.
    pub const NONE: MaybeNumber = MaybeNumber(u64::MAX);

    /// The number, if it is known.
    #[inline]
    pub fn get(self) -> Option<u64> {
        (self != MaybeNumber::NONE).then_some(self.0)
    }
}

impl Default for MaybeNumber {
    fn default() -> MaybeNumber {
        MaybeNumber::NONE
    }
}

impl From<Option<u64>> for MaybeNumber {
    fn from(value: Option<u64>) -> MaybeNumber {
        value.map_or(MaybeNumber::NONE, MaybeNumber)
    }
}

impl fmt::Debug for MaybeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Index of a stream in [`super::RankTrace::streams`].
pub type StreamIndex = u32;

/// A stream of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    /// Index of the stream's process.
    pub process: ProcessIndex,
    /// Number of the device.
    pub device: u32,
    /// Number of the CUDA context; 0 if unknown.
    pub context: u32,
    /// Number of the stream.
    pub stream: u64,
}

/// The kind of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// A kernel on a device.
    Kernel,
    /// A copy or a memset.
    Copy {
        /// The direction of the copy.
        kind: CopyKind,
        /// Kind of memory that was read.
        from: MemoryKind,
        /// Kind of memory that was written.
        to: MemoryKind,
    },
    /// A synchronization that names a stream. Only Holistic Trace Analysis counts it as work, so
    /// there is such work only with `RankTrace::hta`.
    Wait,
    /// A span of a host thread that has a stream number among its arguments. Only Holistic Trace
    /// Analysis counts it as work.
    HostSpan,
}

/// A kernel, a copy or a memset, as it ran on a stream. [`WorkKind`] lists what else counts as work
/// if the report follows Holistic Trace Analysis.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The beginning of the work, ns.
    pub start_ns: u64,
    /// Duration of the work, ns.
    pub duration_ns: u64,
    /// Number that joins the work to its launch.
    pub correlation: MaybeNumber,
    /// Bytes that were copied or set.
    pub bytes: MaybeNumber,
    /// Index of the work's stream.
    pub stream: StreamIndex,
    /// Name of the kernel, copy or memset. Not every source of a trace names copies, so the name of
    /// a copy may be empty.
    pub name: NameId,
    /// The work's other properties as a JSON object; 0 if there are none.
    pub args: NameId,
    /// The graph that contained the work.
    pub graph: Option<u32>,
    /// Number of blocks in a kernel's grid, or the largest number that fits; 0 if it is unknown or
    /// the work isn't a kernel.
    pub blocks: u32,
    /// The kind of the work.
    pub kind: WorkKind,
    /// The class of the work.
    pub class: Class,
}

impl Work {
    pub(super) fn of_kernel(row: &KernelOutline, stream: StreamIndex, class: Class) -> Work {
        Work {
            start_ns: row.start_ns,
            duration_ns: row.duration_ns,
            correlation: row.correlation.into(),
            bytes: MaybeNumber::NONE,
            stream,
            name: row.name,
            args: row.args,
            graph: row.graph,
            blocks: row.grid.iter().fold(1_u32, |blocks, &side| blocks.saturating_mul(side)),
            kind: WorkKind::Kernel,
            class,
        }
    }

    pub(super) fn of_copy(row: &MemoryCopy, stream: StreamIndex) -> Work {
        Work {
            start_ns: row.start_ns,
            duration_ns: row.duration_ns,
            correlation: row.correlation.into(),
            bytes: row.bytes.into(),
            stream,
            name: row.name,
            args: row.args,
            graph: row.graph,
            blocks: 0,
            kind: WorkKind::Copy { kind: row.kind, from: row.from, to: row.to },
            class: Class::Memory,
        }
    }

    /// The end of the work, ns.
    #[inline]
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }

    /// The time in which the work ran.
    #[inline]
    pub fn interval(&self) -> Interval {
        Interval::new(self.start_ns, self.end_ns())
    }

    /// Whether the work is a kernel.
    #[inline]
    pub fn is_kernel(&self) -> bool {
        self.kind == WorkKind::Kernel
    }
}

/// A span of a host thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostSpan {
    /// The beginning of the span, ns.
    pub start_ns: u64,
    /// Duration of the span, ns.
    pub duration_ns: u64,
    /// Number that joins the span, if it is a call that launched work, to that work.
    pub correlation: MaybeNumber,
    /// Index of the span's process.
    pub process: ProcessIndex,
    /// Index of the span's thread.
    pub thread: ThreadIndex,
    /// Name of the function, operator or range.
    pub name: NameId,
    /// NVTX domain, or the category of an imported span.
    pub category: NameId,
    /// The span's other properties as a JSON object; 0 if there are none.
    pub args: NameId,
    /// The kind of the span.
    pub kind: SpanKind,
}

impl From<&SpanOutline> for HostSpan {
    fn from(row: &SpanOutline) -> HostSpan {
        HostSpan {
            start_ns: row.start_ns,
            duration_ns: row.duration_ns,
            correlation: row.correlation.into(),
            process: row.process,
            thread: row.thread,
            name: row.name,
            category: row.category,
            args: row.args,
            kind: row.kind,
        }
    }
}

impl HostSpan {
    /// The end of the span, ns.
    #[inline]
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }

    /// The time in which the span lasted.
    #[inline]
    pub fn interval(&self) -> Interval {
        Interval::new(self.start_ns, self.end_ns())
    }
}
