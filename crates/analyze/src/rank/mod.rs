//! One rank's device work and host spans in memory, joined, in order of time.
//!
//! [`RankTrace::load`] reads those tables that a report needs and keeps little of
//! each row. Ranks are loaded one by one per core and dropped when they have been
//! summarised, so that memory does not grow with ranks.

pub(crate) mod call_tree;
mod classify;
pub(crate) mod collectives;
mod devices;
mod hta;
mod launches;
mod load;
pub(crate) mod nested;
mod nesting;
mod own;
mod rows;
pub mod samples;
mod steps;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::BitOr;
use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use tprof_facts::copies::{self, Copied};
use tprof_trace::model::{
    Collective, DeviceAllocation, DeviceSpan, NameId, SpanKind, Synchronization,
};
use tprof_trace::{Problem, TraceFile};

use crate::base::intervals::Interval;
use crate::rank::call_tree::CallTree;
use crate::rank::samples::CpuTrace;
pub use classify::hta_class;
pub use devices::Busy;
pub use launches::Launches;
pub use nesting::{Moment, OnThread, enclosing, nesting_order, parents};
pub use rows::{HostSpan, MaybeId, StreamIndex, StreamKey, Work, WorkKind};
pub use steps::{PROFILER_STEP, Step, step_at};
pub use tprof_facts::Class;

/// Tables that a report reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs(u32);

impl Needs {
    /// Kernels, copies, memsets.
    pub const WORK: Needs = Needs(1 << 16);
    /// Waits for devices.
    pub const SYNCHRONIZATIONS: Needs = Needs(1 << 17);
    /// Annotations' images on devices, ranges of range profilers.
    pub const DEVICE_SPANS: Needs = Needs(1 << 18);
    /// Collectives.
    pub const COLLECTIVES: Needs = Needs(1 << 19);
    /// Device memory taken and given back.
    pub const ALLOCATIONS: Needs = Needs(1 << 20);
    /// CPU samples.
    pub const SAMPLES: Needs = Needs(1 << 21);
    /// Calls of the runtime and the driver.
    pub const CALLS: Needs = Needs(1 << SpanKind::Runtime as u32 | 1 << SpanKind::Driver as u32);
    /// Operators of a framework.
    pub const OPERATORS: Needs = Needs::spans(SpanKind::Operator);
    /// Annotations.
    pub const ANNOTATIONS: Needs = Needs::spans(SpanKind::Annotation);
    /// Host spans of all kinds.
    pub const ALL_SPANS: Needs = Needs(0xff);
    /// Everything but samples.
    pub const ALL: Needs = Needs(!Needs::SAMPLES.0);

    /// Host spans of one kind.
    pub const fn spans(kind: SpanKind) -> Needs {
        Needs(1 << kind as u32)
    }

    /// Tables of either.
    pub const fn and(self, other: Needs) -> Needs {
        Needs(self.0 | other.0)
    }

    /// Whether all of `other` is in it.
    pub fn has(self, other: Needs) -> bool {
        self.0 & other.0 == other.0
    }

    fn has_any(self, other: Needs) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Needs {
    type Output = Needs;

    fn bitor(self, other: Needs) -> Needs {
        self.and(other)
    }
}

/// One rank file's rows. Tables that were not asked for are empty.
#[derive(Debug)]
pub struct RankTrace<'a> {
    /// Where the names are.
    pub file: &'a TraceFile,
    /// What was read.
    pub needs: Needs,
    /// Streams that something ran on, in order.
    pub streams: Vec<StreamKey>,
    /// Kernels, copies and memsets, in order of start.
    pub work: Vec<Work>,
    /// Calls of the runtime and the driver, in order of start.
    pub calls: Vec<HostSpan>,
    /// Which call started which work; empty unless both were read.
    pub launches: Launches,
    /// Waits, in order of start.
    pub synchronizations: Vec<Synchronization>,
    /// Intervals on devices, in order of start.
    pub device_spans: Vec<DeviceSpan>,
    /// Collectives, in order of start.
    pub collectives: Vec<Collective>,
    /// Device memory taken and given back, in order of time.
    pub allocations: Vec<DeviceAllocation>,
    /// Samples of threads, added up.
    pub cpu: CpuTrace,
    /// What could not be read, and of which tables.
    problems: load::Problems,
    /// Threads that work on this rank may use.
    pub cores: usize,
    /// See [`Self::devices`].
    devices: OnceLock<Vec<Busy>>,
    /// See [`Self::call_tree`] and [`Self::operator_tree`].
    trees: [OnceLock<CallTree>; 2],
    /// Whether this is how Holistic Trace Analysis reads it.
    pub hta: bool,
    /// Under that reading, from the first row's start to the last one's.
    pub extent: Option<Interval>,
    /// Under that reading, what it takes for the launch of work whose launch was
    /// not seen: the start of the row that came first in the imported file.
    pub first_row_ns: Option<u64>,
    /// Host spans by kind, without calls, each in [`nesting_order`].
    spans: [Vec<HostSpan>; SPAN_KINDS],
}

/// Kinds of spans.
const SPAN_KINDS: usize = SpanKind::Other as usize + 1;

impl<'a> RankTrace<'a> {
    /// Reads what is needed of a file, on one thread.
    pub fn load(file: &'a TraceFile, needs: Needs) -> RankTrace<'a> {
        load::load(file, needs, 1)
    }

    fn empty(file: &'a TraceFile, needs: Needs, cores: usize) -> RankTrace<'a> {
        RankTrace {
            file,
            needs,
            streams: Vec::new(),
            work: Vec::new(),
            calls: Vec::new(),
            launches: Launches::default(),
            synchronizations: Vec::new(),
            device_spans: Vec::new(),
            collectives: Vec::new(),
            allocations: Vec::new(),
            cpu: CpuTrace::default(),
            problems: Vec::new(),
            cores,
            hta: false,
            extent: None,
            first_row_ns: None,
            spans: Default::default(),
            devices: OnceLock::new(),
            trees: Default::default(),
        }
    }

    /// As [`Self::load`], or as Holistic Trace Analysis reads the file
    /// (`--hta`): rounded, without the last step, with waits for work.
    pub fn load_as(file: &'a TraceFile, needs: Needs, hta: bool, cores: usize) -> RankTrace<'a> {
        if hta { hta::load(file, needs, cores) } else { load::load(file, needs, cores) }
    }

    /// What of these tables could not be read.
    pub fn problems_in(&self, tables: Needs) -> Vec<Problem> {
        let of = self.problems.iter().filter(|(table, _)| self.hta || tables.has_any(*table));
        of.map(|(_, problem)| problem.clone()).collect()
    }

    /// Call trees of all host spans that were read.
    pub fn call_tree(&self) -> &CallTree {
        self.trees[0].get_or_init(|| CallTree::of(self, Needs::ALL_SPANS))
    }

    /// Call trees of operators and calls alone; of all host spans where the rank is
    /// read as Holistic Trace Analysis reads it.
    pub fn operator_tree(&self) -> &CallTree {
        if self.hta {
            return self.call_tree();
        }
        let of = Needs::OPERATORS | Needs::CALLS;
        self.trees[1].get_or_init(|| CallTree::of(self, of))
    }

    /// Spans of one kind in [`nesting_order`]; calls are in [`Self::calls`].
    pub fn spans(&self, kind: SpanKind) -> &[HostSpan] {
        &self.spans[kind as usize]
    }

    /// An interned string.
    pub fn name(&self, id: NameId) -> &'a str {
        self.file.name(id)
    }

    /// Name of a piece of work: a kernel's, or a copy's ([`copies::name`]).
    pub fn work_name(&self, work: &Work) -> Cow<'a, str> {
        self.name_of_work(work.name, work.kind)
    }

    /// As [`Self::work_name`], of a row's name and kind.
    pub fn name_of_work(&self, name: NameId, kind: WorkKind) -> Cow<'a, str> {
        match kind {
            WorkKind::Copy { kind, from, to } => {
                copies::name(self.file, Copied { name, kind, from, to })
            }
            _ => Cow::Borrowed(self.name(name)),
        }
    }

    /// Where a piece of work ran.
    pub fn stream(&self, work: &Work) -> StreamKey {
        self.streams[work.stream as usize]
    }
}

/// Streams as they appear.
#[derive(Default)]
struct Streams {
    index: FxHashMap<StreamKey, StreamIndex>,
    /// Rows come in runs of one stream.
    last: Option<(StreamKey, StreamIndex)>,
}

impl Streams {
    /// Begins with these.
    fn new(streams: &[StreamKey]) -> Streams {
        Streams { index: streams.iter().copied().zip(0..).collect(), last: None }
    }

    fn index(&mut self, key: StreamKey) -> StreamIndex {
        if let Some((_, index)) = self.last.filter(|last| last.0 == key) {
            return index;
        }
        let next = self.index.len() as StreamIndex;
        let index = *self.index.entry(key).or_insert(next);
        self.last = Some((key, index));
        index
    }

    /// The streams in order, and each old index's new one.
    fn sorted(self) -> (Vec<StreamKey>, Vec<StreamIndex>) {
        let mut rows: Vec<(StreamKey, StreamIndex)> = self.index.into_iter().collect();
        rows.sort_unstable();
        let mut order = vec![0; rows.len()];
        for ((_, old), new) in rows.iter().zip(0..) {
            order[*old as usize] = new;
        }
        (rows.into_iter().map(|(key, _)| key).collect(), order)
    }
}
