//! Defines the rows that analyses keep in memory, with only the fields that analyses need.
//!
//! A kernel's row in the trace model has three hundred bytes, most of them needed only by exports.
//! Ten million rows must fit in memory, so the rows here are a fifth of that size. Small rows also
//! save time, because the first access to each page of memory takes one or two microseconds.

use std::fmt;

use tprof_facts::Class;
use tprof_trace::model::{
    CopyKind, KernelOutline, MemoryCopy, MemoryKind, NameId, ProcessIndex, SpanKind, SpanOutline,
    ThreadIndex,
};

use crate::base::intervals::Interval;

/// A number that may be unknown, in eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MaybeId(u64);

impl MaybeId {
    /// The unknown value.
    pub const NONE: MaybeId = MaybeId(u64::MAX);

    /// The number, if it is known.
    pub fn get(self) -> Option<u64> {
        (self != MaybeId::NONE).then_some(self.0)
    }
}

impl Default for MaybeId {
    fn default() -> MaybeId {
        MaybeId::NONE
    }
}

impl From<Option<u64>> for MaybeId {
    fn from(value: Option<u64>) -> MaybeId {
        value.map_or(MaybeId::NONE, MaybeId)
    }
}

impl fmt::Debug for MaybeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Index of a stream in [`super::RankTrace::streams`].
pub type StreamIndex = u32;

/// A stream of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    /// Index of its process.
    pub process: ProcessIndex,
    /// Number of the device.
    pub device: u32,
    /// Context; 0 if unknown.
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
    /// A wait on a stream, which only Holistic Trace Analysis counts as work.
    Wait,
    /// A host span with a stream number, which only Holistic Trace Analysis counts as work.
    HostSpan,
}

/// A kernel, a copy or a memset, as it ran on a stream.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The beginning of the work, ns.
    pub start_ns: u64,
    /// Duration of the work, ns.
    pub duration_ns: u64,
    /// Number that joins the work to its launch.
    pub correlation: MaybeId,
    /// Bytes that were copied or set.
    pub bytes: MaybeId,
    /// Index of its stream.
    pub stream: StreamIndex,
    /// Name; that of a copy is as the trace's source wrote it, or empty.
    pub name: NameId,
    /// The work's other properties as a JSON object; 0 if there are none.
    pub args: NameId,
    /// The graph that contained the work.
    pub graph: Option<u32>,
    /// Number of blocks in a kernel's grid, or the largest number that fits; 0 if unknown.
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
            bytes: MaybeId::NONE,
            stream,
            name: row.name,
            args: row.args,
            graph: row.graph,
            blocks: row.grid.iter().fold(1_u32, |all, &side| all.saturating_mul(side)),
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
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }

    /// The time in which the work ran.
    pub fn interval(&self) -> Interval {
        Interval::new(self.start_ns, self.end_ns())
    }

    /// Whether the work is a kernel.
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
    /// Number that joins this call to the work that it launched on a device.
    pub correlation: MaybeId,
    /// Index of its process.
    pub process: ProcessIndex,
    /// Index of its thread.
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
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }

    /// The time in which the span lasted.
    pub fn interval(&self) -> Interval {
        Interval::new(self.start_ns, self.end_ns())
    }
}
