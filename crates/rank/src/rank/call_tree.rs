//! The call trees of all host threads of a rank: which span called which.
//!
//! A span's caller is the innermost span of its thread that contains the whole span, of any kind.
//! If a clock ticks in microseconds, siblings may overlap by one microsecond, and spans may have no
//! duration. Such spans must not become the callers of spans that follow them. So a span that no
//! other span contains completely is at the outermost level.

use tprof_trace::model::{NameId, SpanKind};

use super::nested::Nested;
use super::rows::HostSpan;

/// Stands for a missing caller of a span, or a missing span of a call.
const NONE: u32 = u32::MAX;

/// Spans of all threads, in the order of [`Nested`].
#[derive(Clone, Debug, Default)]
pub struct CallTree {
    /// All spans in nesting order.
    pub spans: Vec<TreeSpan>,
    caller: Vec<u32>,
    depth: Vec<u32>,
    of_call: Vec<u32>,
}

/// The fields of a span that determine its place in the tree and its cost.
#[derive(Clone, Copy, Debug)]
pub struct TreeSpan {
    /// The beginning of the span, ns.
    pub start_ns: u64,
    /// Duration of the span, ns.
    pub duration_ns: u64,
    /// Index of its thread.
    pub thread: u32,
    /// Name of the function, operator or range.
    pub name: NameId,
    /// The span's other properties as a JSON object; 0 if there are none.
    pub args: NameId,
    /// The kind of the span.
    pub kind: SpanKind,
}

impl TreeSpan {
    fn of(span: &HostSpan) -> TreeSpan {
        let HostSpan { start_ns, duration_ns, thread, name, args, kind, .. } = *span;
        TreeSpan { start_ns, duration_ns, thread, name, args, kind }
    }

    /// The end of the span, ns.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

impl CallTree {
    /// Builds the trees from `nested`. `calls` is the number of calls among the spans. See
    /// [`RankTrace::call_tree`](super::RankTrace::call_tree).
    pub(super) fn of(nested: Nested<'_>, calls: usize) -> CallTree {
        let mut of_call = vec![NONE; calls];
        let mut spans = Vec::with_capacity(nested.remaining());
        for ((span, call), place) in nested.zip(0..) {
            spans.push(TreeSpan::of(span));
            if let Some(call) = call {
                of_call[call as usize] = place;
            }
        }
        let (caller, depth) = nest(&spans);
        CallTree { spans, caller, depth, of_call }
    }

    /// The span that called this one.
    pub fn caller(&self, span: u32) -> Option<u32> {
        self.caller.get(span as usize).copied().filter(|&caller| caller != NONE)
    }

    /// Number of spans that contain this one.
    pub fn depth(&self, span: u32) -> u32 {
        self.depth[span as usize]
    }

    /// Index in `spans` of the rank's call with the index `call`.
    pub fn of_call(&self, call: usize) -> Option<u32> {
        self.of_call.get(call).copied().filter(|&at| at != NONE)
    }

    /// Returns the indices of a span and its callers, innermost first.
    pub fn outwards(&self, span: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(span), |&at| self.caller(at))
    }

    /// Returns the innermost span of this kind among a span and its callers.
    pub fn innermost(&self, span: u32, kind: SpanKind) -> Option<u32> {
        self.outwards(span).find(|&at| self.spans[at as usize].kind == kind)
    }
}

/// Returns the caller and the depth of each span; the spans are in nesting order.
fn nest(spans: &[TreeSpan]) -> (Vec<u32>, Vec<u32>) {
    let room = || Vec::with_capacity(spans.len());
    let (mut callers, mut depths) = (room(), room());
    let mut open: Vec<(u32, u64)> = Vec::new();
    let mut thread = None;
    for (span, at) in spans.iter().zip(0..) {
        if thread != Some(span.thread) {
            thread = Some(span.thread);
            open.clear();
        }
        // A span without a duration at the very end of another span is within that span.
        let is_over = |end: u64| end < span.start_ns + u64::from(span.duration_ns > 0);
        while open.last().is_some_and(|&(_, end)| is_over(end)) {
            open.pop();
        }
        let holder = open.iter().rev().find(|&&(_, end)| end >= span.end_ns());
        callers.push(holder.map_or(NONE, |&(caller, _)| caller));
        depths.push(holder.map_or(0, |&(caller, _)| depths[caller as usize] + 1));
        open.push((at, span.end_ns()));
    }
    (callers, depths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(thread: u32, start_ns: u64, duration_ns: u64, kind: SpanKind) -> HostSpan {
        HostSpan { thread, start_ns, duration_ns, kind, ..HostSpan::default() }
    }

    type Times = (u32, u64, u64);

    fn built(spans: &[HostSpan], first_call: usize) -> CallTree {
        let (spans, calls) = spans.split_at(first_call);
        CallTree::of(Nested::of([(spans, false), (calls, true)]), calls.len())
    }

    fn times(span: &TreeSpan) -> Times {
        (span.thread, span.start_ns, span.duration_ns)
    }

    /// For each span: its times, the times of its caller, and its depth.
    fn rows(tree: &CallTree) -> Vec<(Times, Option<Times>, u32)> {
        let of = |at: u32| times(&tree.spans[at as usize]);
        let row = |at: u32| (of(at), tree.caller(at).map(of), tree.depth(at));
        (0..tree.spans.len() as u32).map(row).collect()
    }

    #[test]
    fn the_caller_is_the_innermost_span_that_contains_the_whole_call() {
        let op = SpanKind::Operator;
        let spans = [
            span(1, 0, 100, op),
            span(1, 10, 20, op),
            span(2, 12, 3, op),
            // This span overlaps the first one without lying in it.
            span(1, 90, 20, op),
            span(1, 95, 5, op),
            span(1, 10, 20, SpanKind::Runtime),
        ];
        let tree = built(&spans, 5);
        let call = tree.of_call(0).unwrap();
        let kinds: Vec<SpanKind> =
            tree.outwards(call).map(|at| tree.spans[at as usize].kind).collect();
        assert_eq!(
            kinds,
            [SpanKind::Runtime, op, op],
            "an operator contains a call with the same start and end"
        );
        assert_eq!(tree.innermost(call, op), Some(call - 1));
        let callers: Vec<_> = rows(&tree).iter().map(|row| (row.0, row.1, row.2)).collect();
        assert_eq!(callers[0], ((1, 0, 100), None, 0));
        assert_eq!(callers[1], ((1, 10, 20), Some((1, 0, 100)), 1));
        assert_eq!(callers[2], ((1, 10, 20), Some((1, 10, 20)), 2));
        assert_eq!(callers[3], ((1, 90, 20), None, 0));
        assert_eq!(callers[4], ((1, 95, 5), Some((1, 90, 20)), 1));
        assert_eq!(callers[5], ((2, 12, 3), None, 0));
    }

    #[test]
    fn a_span_without_duration_belongs_to_the_span_that_ends_there() {
        let op = SpanKind::Operator;
        let tree = built(&[span(1, 0, 10, op), span(1, 10, 0, op)], 2);
        assert_eq!(tree.caller(1), Some(0));
        let tree = built(&[span(1, 0, 10, op), span(1, 10, 0, op), span(1, 10, 5, op)], 3);
        assert_eq!(
            rows(&tree)[2],
            ((1, 10, 0), Some((1, 10, 5)), 1),
            "the span that begins there is not its caller"
        );
    }

    proptest! {
        #[test]
        fn callers_contain_their_callees_in_any_order_of_rows(
            given in prop::collection::vec((0_u32..3, 0_u64..40, 0_u64..20), 0..40),
            turn in 0_usize..40,
        ) {
            let mut spans: Vec<HostSpan> = given
                .iter()
                .map(|&(thread, start, long)| span(thread, start, long, SpanKind::Operator))
                .collect();
            let tree = built(&spans, spans.len());
            let whole = rows(&tree);
            for (inner, caller, _) in &whole {
                if let Some(outer) = caller {
                    prop_assert_eq!(outer.0, inner.0);
                    prop_assert!(outer.1 <= inner.1 && outer.1 + outer.2 >= inner.1 + inner.2);
                }
            }
            spans.rotate_left(turn.min(given.len()));
            prop_assert_eq!(rows(&built(&spans, spans.len())), whole);
        }
    }
}
