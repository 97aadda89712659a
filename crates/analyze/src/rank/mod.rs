//! One rank's device work and host spans in memory, joined, in order of time.
//!
//! [`RankTrace::load`] reads those tables that a report needs and keeps little of
//! each row. Ranks are loaded one by one per core and dropped when they have been
//! summarised, so that memory does not grow with ranks.

mod classify;
mod devices;
mod hta;
mod launches;
mod nesting;
mod rows;
mod steps;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::BitOr;

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_trace::model::{
    Collective, DeviceAllocation, DeviceSpan, Kernel, MemoryCopy, NameId, Span, SpanKind,
    Synchronization,
};
use tprof_trace::{Problem, TraceFile, TraceRow};

use crate::intervals::Interval;
pub use classify::{Class, copy_name, hta_class, kernel_class};
pub use devices::{Busy, DeviceWork};
pub use launches::Launches;
pub use nesting::{enclosing, nesting_order, parents};
pub use rows::{HostSpan, MaybeId, StreamIndex, StreamKey, Work, WorkKind};
pub use steps::{PROFILER_STEP, Step, step_at};

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
    /// Calls of the runtime and the driver.
    pub const CALLS: Needs = Needs(1 << SpanKind::Runtime as u32 | 1 << SpanKind::Driver as u32);
    /// Operators of a framework.
    pub const OPERATORS: Needs = Needs::spans(SpanKind::Operator);
    /// Annotations.
    pub const ANNOTATIONS: Needs = Needs::spans(SpanKind::Annotation);
    /// Host spans of all kinds.
    pub const ALL_SPANS: Needs = Needs(0xff);
    /// Everything.
    pub const ALL: Needs = Needs(u32::MAX);

    /// Host spans of one kind.
    pub const fn spans(kind: SpanKind) -> Needs {
        Needs(1 << kind as u32)
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
        Needs(self.0 | other.0)
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
    /// What could not be read.
    pub problems: Vec<Problem>,
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
    /// Reads what is needed of a file.
    pub fn load(file: &'a TraceFile, needs: Needs) -> RankTrace<'a> {
        let mut rank = RankTrace {
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
            problems: Vec::new(),
            hta: false,
            extent: None,
            first_row_ns: None,
            spans: Default::default(),
        };
        if needs.has_any(Needs::WORK) || needs.has_any(Needs::COLLECTIVES) {
            rank.collectives = rank.rows();
        }
        if needs.has_any(Needs::WORK) {
            rank.load_work();
        }
        if needs.has_any(Needs::ALL_SPANS) {
            rank.load_spans();
        }
        if needs.has_any(Needs::WORK) && needs.has(Needs::CALLS) {
            rank.launches = Launches::of(&rank.calls, &rank.work, &rank.streams);
        }
        if needs.has_any(Needs::SYNCHRONIZATIONS) {
            rank.synchronizations = rank.rows();
        }
        if needs.has_any(Needs::DEVICE_SPANS) {
            rank.device_spans = rank.rows();
        }
        if needs.has_any(Needs::ALLOCATIONS) {
            rank.allocations = rank.rows();
        }
        rank
    }

    /// As [`Self::load`], or as Holistic Trace Analysis reads the file
    /// (`--hta`): rounded, without the last step, with waits for work.
    pub fn load_as(file: &'a TraceFile, needs: Needs, hta: bool) -> RankTrace<'a> {
        if hta { hta::load(file, needs) } else { RankTrace::load(file, needs) }
    }

    /// Spans of one kind in [`nesting_order`]; calls are in [`Self::calls`].
    pub fn spans(&self, kind: SpanKind) -> &[HostSpan] {
        &self.spans[kind as usize]
    }

    /// An interned string.
    pub fn name(&self, id: NameId) -> &'a str {
        self.file.name(id)
    }

    /// Name of a piece of work: a kernel's; a copy's as its source wrote it, or its direction.
    pub fn work_name(&self, work: &Work) -> Cow<'a, str> {
        match work.kind {
            WorkKind::Copy(kind) if work.name == NameId(0) => Cow::Borrowed(copy_name(kind)),
            _ => Cow::Borrowed(self.name(work.name)),
        }
    }

    /// Where a piece of work ran.
    pub fn stream(&self, work: &Work) -> StreamKey {
        self.streams[work.stream as usize]
    }

    /// All rows of a table, by time.
    fn rows<R: TraceRow>(&mut self) -> Vec<R> {
        let (rows, mut problems) = self.file.rows();
        self.problems.append(&mut problems);
        rows
    }

    fn load_work(&mut self) {
        let of_collective = |row: &Collective| Some((row.process, row.correlation?));
        let collective: FxHashSet<(u32, u64)> =
            self.collectives.iter().filter_map(of_collective).collect();
        let mut streams = Streams::default();
        let mut classes: FxHashMap<NameId, Class> = FxHashMap::default();
        let file = self.file;
        let mut work = Vec::with_capacity(
            (file.row_count::<Kernel>() + file.row_count::<MemoryCopy>()) as usize,
        );
        self.each::<Kernel>(|row| {
            let by_name =
                *classes.entry(row.name).or_insert_with(|| kernel_class(file.name(row.name)));
            let known = row.correlation.is_some_and(|at| collective.contains(&(row.process, at)));
            let class = if known { Class::Communication } else { by_name };
            let (process, device, context, stream) =
                (row.process, row.device, row.context, row.stream);
            let stream = streams.index(StreamKey { process, device, context, stream });
            work.push(Work::of_kernel(row, stream, class));
        });
        self.each::<MemoryCopy>(|row| {
            let (process, device, context, stream) =
                (row.process, row.device, row.context, row.stream);
            let stream = streams.index(StreamKey { process, device, context, stream });
            work.push(Work::of_copy(row, stream));
        });
        let (streams, order) = streams.sorted();
        for row in &mut work {
            row.stream = order[row.stream as usize];
        }
        // Ties are broken by what ran, not by where the file had it.
        work.sort_by_key(|row| (row.start_ns, row.duration_ns, row.stream, row.correlation));
        self.streams = streams;
        self.work = work;
    }

    fn load_spans(&mut self) {
        let needs = self.needs;
        let mut spans: [Vec<HostSpan>; SPAN_KINDS] = Default::default();
        let mut calls = Vec::new();
        self.each::<Span>(|row| {
            if !needs.has(Needs::spans(row.kind)) {
                return;
            }
            match row.kind {
                SpanKind::Runtime | SpanKind::Driver => calls.push(HostSpan::from(row)),
                kind => spans[kind as usize].push(HostSpan::from(row)),
            }
        });
        calls.sort_by_key(|row| (row.start_ns, row.thread, std::cmp::Reverse(row.duration_ns)));
        for spans in &mut spans {
            spans.sort_by_key(nesting_order);
        }
        self.calls = calls;
        self.spans = spans;
    }

    /// Passes every row of a table, in the file's order.
    fn each<R: TraceRow>(&mut self, mut row: impl FnMut(&R)) {
        let mut blocks = self.file.blocks::<R>();
        for block in blocks.by_ref() {
            block.iter().for_each(&mut row);
        }
        self.problems.extend(blocks.into_problems());
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
