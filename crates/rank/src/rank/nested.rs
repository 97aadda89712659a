//! Iterates over a rank's host spans of several kinds in nesting order: by thread, then by start,
//! and callers before their callees.

use std::cmp::Reverse;

use tprof_trace::model::SpanKind;

use super::rows::HostSpan;

/// Kinds of spans that are not calls.
pub(super) const ALL_KINDS: [SpanKind; 6] = [
    SpanKind::Python,
    SpanKind::Annotation,
    SpanKind::Nvtx,
    SpanKind::Other,
    SpanKind::Operator,
    SpanKind::Overhead,
];

/// The rank of a kind among spans with the same start and end. Ranges of the program contain the
/// framework's calls, which contain calls of the device's library.
fn outwards(kind: SpanKind) -> u8 {
    match kind {
        SpanKind::Python => 0,
        SpanKind::Annotation | SpanKind::Nvtx => 1,
        SpanKind::Other => 2,
        SpanKind::Operator => 3,
        SpanKind::Runtime => 4,
        SpanKind::Driver => 5,
        SpanKind::Overhead => 6,
    }
}

/// The order of spans: by thread, start, end and kind.
pub type SpanOrder = (u32, u64, Reverse<u64>, u8);

fn key(span: &HostSpan) -> SpanOrder {
    place_of_span(span.thread, span.start_ns, span.end_ns(), span.kind)
}

/// The position of a span in the order of [`Nested`].
pub fn place_of_span(thread: u32, start_ns: u64, end_ns: u64, kind: SpanKind) -> SpanOrder {
    (thread, start_ns, Reverse(end_ns), outwards(kind))
}

/// Iterates over spans in nesting order, each with its index if it is a call.
///
/// The rank's lists are merged on the fly, because a sorted copy of ten million spans would use
/// half a gigabyte. Each list is in nesting order already, except for calls: those are in order of
/// time over all threads, so an index of their order is built.
pub struct Nested<'r> {
    lists: Vec<SpanList<'r>>,
}

/// A list of spans of one kind, or of all calls.
struct SpanList<'r> {
    spans: &'r [HostSpan],
    /// The order of the spans as indices; `None` if `spans` is in order.
    order: Option<Vec<u32>>,
    are_calls: bool,
    /// Number of spans that were returned so far.
    taken: usize,
    /// The position of the next span.
    key: SpanOrder,
}

impl<'r> SpanList<'r> {
    fn of(spans: &'r [HostSpan], are_calls: bool) -> Option<SpanList<'r>> {
        let order = (!spans.is_sorted_by_key(key)).then(|| {
            let mut order: Vec<u32> = (0..spans.len() as u32).collect();
            order.sort_by_key(|&at| key(&spans[at as usize]));
            order
        });
        let mut list = SpanList { spans, order, are_calls, taken: 0, key: key(spans.first()?) };
        list.key = key(&spans[list.place()?]);
        Some(list)
    }

    /// Index of the next span in `spans`.
    fn place(&self) -> Option<usize> {
        match &self.order {
            Some(order) => order.get(self.taken).map(|&at| at as usize),
            None => (self.taken < self.spans.len()).then_some(self.taken),
        }
    }
}

impl<'r> Nested<'r> {
    /// Merges lists of spans. The flag of each list tells whether its spans are calls.
    pub fn of(lists: impl IntoIterator<Item = (&'r [HostSpan], bool)>) -> Nested<'r> {
        let lists = lists.into_iter();
        Nested {
            lists: lists.filter_map(|(spans, are_calls)| SpanList::of(spans, are_calls)).collect(),
        }
    }

    /// Number of spans that were not returned yet.
    pub fn remaining(&self) -> usize {
        self.lists.iter().map(|list| list.spans.len() - list.taken).sum()
    }
}

impl<'r> Iterator for Nested<'r> {
    type Item = (&'r HostSpan, Option<u32>);

    fn next(&mut self) -> Option<(&'r HostSpan, Option<u32>)> {
        // If spans of several lists have equal keys, the span of the first list comes first.
        let (at, list) = self.lists.iter_mut().enumerate().min_by_key(|(_, list)| list.key)?;
        let place = list.place()?;
        list.taken += 1;
        let (spans, is_call) = (list.spans, list.are_calls);
        match list.place() {
            Some(next) => list.key = key(&spans[next]),
            None => {
                self.lists.remove(at);
            }
        }
        Some((&spans[place], is_call.then_some(place as u32)))
    }
}
