//! Adds host spans to trees, nested by time, and finds the place of each launch among the spans.
//!
//! At each moment, a thread's time is added to the path of spans that are open. So the numbers of a
//! path add up to the time that its thread spent in these spans. Spans that cross, as two NVTX
//! ranges may, nest in the order in which they began.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::model::{DeviceAllocation, ProcessIndex, Span, SpanKind, StackId, ThreadIndex};

use super::labels::Labels;
use super::profile::{Measure, Profile};
use super::tree::{FrameKind, FrameTable};
use crate::rows::wanted;
use crate::{OpenRank, Written};

pub(crate) const MEASURES: [Measure; 2] = [
    Measure {
        label: "Host time",
        unit: "ns",
        about: "time of each thread within the spans recorded on it, running or waiting",
    },
    Measure { label: "Calls", unit: "count", about: "spans that began" },
];

/// The place among the spans where a launch was made.
#[derive(Clone, Copy)]
pub(crate) struct LaunchSite {
    /// Node of the host tree.
    pub node: u32,
    /// Innermost stack that a span around the launch has.
    pub stack: Option<StackId>,
    pub thread: ThreadIndex,
}

/// Places of launches, operators and device allocations among the spans.
#[derive(Default)]
pub(crate) struct SpanSites {
    pub correlations: FxHashMap<(ProcessIndex, u64), LaunchSite>,
    pub externals: FxHashMap<(ProcessIndex, u64), LaunchSite>,
    pub allocations: Vec<(DeviceAllocation, Option<LaunchSite>)>,
}

/// Adds the spans of a file.
pub(crate) fn collect(
    part: &OpenRank<'_>,
    written: &mut Written,
    labels: &mut Labels<'_>,
    table: &mut FrameTable,
    profile: &mut Profile,
) -> SpanSites {
    let file = &part.trace;
    let mut spans = wanted::<Span>(part, written);
    for span in &mut spans {
        let (start_ns, end_ns) = part.window.clip(span.start_ns, span.duration_ns);
        (span.start_ns, span.duration_ns) = (start_ns, end_ns - start_ns);
    }
    spans.sort_by_key(|s| (s.thread, s.start_ns, Reverse(s.duration_ns), outwards(s.kind)));
    let mut allocations = wanted::<DeviceAllocation>(part, written);
    allocations.retain(|row| !row.free);
    allocations.sort_by_key(|row| (row.thread, row.time_ns));
    let mut allocations = allocations.into_iter().peekable();
    let mut places = SpanSites::default();
    for spans in spans.chunk_by(|a, b| a.thread == b.thread) {
        let thread = spans[0].thread;
        while let Some(row) = allocations.next_if(|row| row.thread < thread) {
            places.allocations.push((row, None));
        }
        let above = labels.above(spans[0].process, Some(thread), table).to_vec();
        let root = profile.node(&above, &[]);
        let mut sweep = Sweep { profile, root, thread, now_ns: 0, open: Vec::new() };
        for span in spans {
            while let Some(row) =
                allocations.next_if(|row| row.thread == thread && row.time_ns < span.start_ns)
            {
                sweep.advance(row.time_ns);
                places.allocations.push((row, sweep.place()));
            }
            sweep.advance(span.start_ns);
            sweep.begin(span, file, table);
            sweep.note(span, &mut places);
        }
        while let Some(row) = allocations.next_if(|row| row.thread == thread) {
            sweep.advance(row.time_ns);
            places.allocations.push((row, sweep.place()));
        }
        sweep.advance(u64::MAX);
    }
    places.allocations.extend(allocations.map(|row| (row, None)));
    places
}

/// Returns the order of spans that cover the same time: the outermost kind is lowest.
fn outwards(kind: SpanKind) -> u8 {
    match kind {
        SpanKind::Python => 0,
        SpanKind::Annotation => 1,
        SpanKind::Nvtx => 2,
        SpanKind::Operator => 3,
        SpanKind::Other => 4,
        SpanKind::Runtime => 5,
        SpanKind::Driver => 6,
        SpanKind::Overhead => 7,
    }
}

/// A span that is still open.
struct OpenSpan {
    end_ns: u64,
    /// Earliest end of this span and of the spans around it. Normally this is the span's own end,
    /// but a span that it crosses may end earlier.
    least_end_ns: u64,
    frame: u32,
    node: u32,
    stack: Option<StackId>,
}

/// State of one thread while its spans are read in order.
struct Sweep<'a> {
    profile: &'a mut Profile,
    root: u32,
    thread: ThreadIndex,
    now_ns: u64,
    open: Vec<OpenSpan>,
}

impl Sweep<'_> {
    /// Adds the time until `to_ns` to the open spans, and closes spans that end before.
    fn advance(&mut self, to_ns: u64) {
        while let Some(end_ns) = self.open.last().map(|top| top.least_end_ns) {
            if end_ns > to_ns {
                break;
            }
            self.spend(end_ns);
            self.close(end_ns);
        }
        self.spend(to_ns);
    }

    fn spend(&mut self, to_ns: u64) {
        if let Some(top) = self.open.last() {
            self.profile.add(top.node, 0, to_ns.saturating_sub(self.now_ns) as f64);
        }
        self.now_ns = self.now_ns.max(to_ns);
    }

    fn close(&mut self, end_ns: u64) {
        let at = self.open.iter().rposition(|open| open.end_ns == end_ns).unwrap_or(0);
        let above = self.open.split_off(at);
        for open in above.into_iter().skip(1) {
            self.push(open.end_ns, open.frame, open.stack);
        }
    }

    fn push(&mut self, end_ns: u64, frame: u32, stack: Option<StackId>) {
        let (node, least_end_ns) = match self.open.last() {
            Some(below) => (below.node, below.least_end_ns.min(end_ns)),
            None => (self.root, end_ns),
        };
        let node = self.profile.tree.child(node, frame);
        self.open.push(OpenSpan { end_ns, least_end_ns, frame, node, stack });
    }

    fn begin(&mut self, span: &Span, file: &TraceFile, table: &mut FrameTable) {
        let frame = span_frame(span, file, table);
        let stack = Some(span.stack).filter(|&stack| stack != 0);
        let stack = stack.or_else(|| self.open.last()?.stack);
        self.push(span.start_ns.saturating_add(span.duration_ns), frame, stack);
        let node = self.open.last().map_or(self.root, |top| top.node);
        self.profile.add(node, 1, 1.0);
    }

    fn place(&self) -> Option<LaunchSite> {
        let top = self.open.last()?;
        Some(LaunchSite { node: top.node, stack: top.stack, thread: self.thread })
    }

    /// Stores the places of launches and operators. If several calls have one correlation, the
    /// outermost counts, which is the runtime's call and not the driver's call inside it.
    fn note(&self, span: &Span, places: &mut SpanSites) {
        let Some(place) = self.place() else { return };
        let calls = matches!(span.kind, SpanKind::Runtime | SpanKind::Driver);
        if let (true, Some(correlation)) = (calls, span.correlation) {
            places.correlations.entry((span.process, correlation)).or_insert(place);
        }
        if let (false, Some(external)) = (calls, span.external) {
            places.externals.entry((span.process, external)).or_insert(place);
        }
    }
}

/// Shortens `ProfilerStep#12` to `ProfilerStep`.
fn without_number(name: &str) -> &str {
    match name.rsplit_once('#') {
        Some((stem, number))
            if !stem.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()) =>
        {
            if number.is_empty() { name } else { stem }
        }
        _ => name,
    }
}

fn span_frame(span: &Span, file: &TraceFile, table: &mut FrameTable) -> u32 {
    let kind = match span.kind {
        SpanKind::Runtime | SpanKind::Driver => FrameKind::Call,
        SpanKind::Operator => FrameKind::Operator,
        SpanKind::Annotation | SpanKind::Nvtx => FrameKind::Range,
        SpanKind::Python => FrameKind::Python,
        SpanKind::Overhead => FrameKind::Overhead,
        SpanKind::Other => FrameKind::Native,
    };
    let name = match file.name(span.name) {
        "" => "(unnamed)",
        // All steps share one frame, because separate frames would hide what the steps have in
        // common.
        name if kind == FrameKind::Range => without_number(name),
        name => name,
    };
    table.frame(kind, name, file.name(span.category))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_removed_from_steps_but_not_from_other_names() {
        assert_eq!(without_number("ProfilerStep#12"), "ProfilerStep");
        assert_eq!(without_number("Optimizer.step#AdamW.step"), "Optimizer.step#AdamW.step");
        assert_eq!(without_number("#7"), "#7");
        assert_eq!(without_number("C#"), "C#");
    }
}
