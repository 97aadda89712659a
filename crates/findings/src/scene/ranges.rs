//! Collects the named ranges and operators that show where an event happened.

use tprof_facts::steps::number_of;
use tprof_rank::{HostSpan, OnThread, PROFILER_STEP, RankTrace, nesting_order};
use tprof_trace::model::{NameId, SpanKind, ThreadIndex};

/// A named range, or an operator.
pub(super) struct NamedRange {
    start_ns: u64,
    end_ns: u64,
    thread: ThreadIndex,
    pub name: NameId,
}

impl OnThread for NamedRange {
    fn thread(&self) -> u32 {
        self.thread
    }

    fn start_ns(&self) -> u64 {
        self.start_ns
    }

    fn end_ns(&self) -> u64 {
        self.end_ns
    }
}

/// Returns the ranges of a rank except its steps, in nesting order.
pub(super) fn ranges(rank: &RankTrace<'_>) -> Vec<NamedRange> {
    let spans = [SpanKind::Annotation, SpanKind::Nvtx, SpanKind::Operator]
        .map(|kind| rank.spans(kind).iter());
    let mut ranges = Vec::with_capacity(spans.iter().map(ExactSizeIterator::len).sum());
    for span in spans.into_iter().flatten() {
        let HostSpan { start_ns, thread, name, kind, .. } = *span;
        let text = rank.name(name);
        if !text.starts_with(PROFILER_STEP) && number_of(kind, text).is_none() {
            ranges.push(NamedRange { start_ns, end_ns: span.end_ns(), thread, name });
        }
    }
    ranges.sort_by_key(nesting_order);
    ranges
}
