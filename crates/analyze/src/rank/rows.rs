//! Rows as analyses hold them: what every analysis needs, and no more.
//!
//! A kernel's row in the trace model takes three hundred bytes, most of them for
//! exports. Ten million rows must fit, so these are a fifth of that. Memory costs
//! time too: to touch a page first takes one or two microseconds.

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
    /// Unknown.
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
    /// Its process.
    pub process: ProcessIndex,
    /// Device.
    pub device: u32,
    /// Context; 0 if unknown.
    pub context: u32,
    /// Stream.
    pub stream: u64,
}

/// What ran on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// A kernel.
    Kernel,
    /// A copy or a memset.
    Copy {
        /// Direction.
        kind: CopyKind,
        /// Kind of memory that was read.
        from: MemoryKind,
        /// Kind of memory that was written.
        to: MemoryKind,
    },
    /// A wait on a stream; only Holistic Trace Analysis takes it for work.
    Wait,
    /// A host span with a stream's number; so too.
    HostSpan,
}

/// A kernel, a copy or a memset, as it ran on a stream.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// When it began.
    pub start_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// Number that its launch carries too.
    pub correlation: MaybeId,
    /// Bytes of a copy.
    pub bytes: MaybeId,
    /// Where.
    pub stream: StreamIndex,
    /// Name; of a copy, as its source wrote it, or empty.
    pub name: NameId,
    /// Everything else that was known of it, as a JSON object; 0 if nothing.
    pub args: NameId,
    /// Graph that launched it.
    pub graph: Option<u32>,
    /// Blocks of a kernel's grid, as many as fit; 0 if unknown.
    pub blocks: u32,
    /// What ran.
    pub kind: WorkKind,
    /// What it is for.
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

    /// When it was over.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }

    /// When it ran.
    pub fn interval(&self) -> Interval {
        Interval::new(self.start_ns, self.end_ns())
    }

    /// Whether it is a kernel.
    pub fn is_kernel(&self) -> bool {
        self.kind == WorkKind::Kernel
    }
}

/// A span of a host thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostSpan {
    /// When it began.
    pub start_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// Number that what this call started on a device carries too.
    pub correlation: MaybeId,
    /// Its process.
    pub process: ProcessIndex,
    /// On which thread.
    pub thread: ThreadIndex,
    /// Function, operator or range.
    pub name: NameId,
    /// NVTX domain, or an import's category.
    pub category: NameId,
    /// Everything else that was known of it, as a JSON object; 0 if nothing.
    pub args: NameId,
    /// What it is.
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
    /// When it was over.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }

    /// When it lasted.
    pub fn interval(&self) -> Interval {
        Interval::new(self.start_ns, self.end_ns())
    }
}
