//! Finds the innermost span of a thread at each moment.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_rank::base::intervals::Interval;
use tprof_trace::model::ThreadIndex;

use super::find::OwnSpan;

/// Stands for the index of the innermost span while no span is open.
const NONE: u32 = u32::MAX;

/// For each thread, in order of time: the moments at which the innermost span changes, and that
/// span.
pub(super) struct OpenSpans {
    changes: FxHashMap<ThreadIndex, Vec<(u64, u32)>>,
}

impl OpenSpans {
    /// Reads spans, which are in nesting order. Spans that any thread may end belong to no thread.
    pub fn of(spans: &[OwnSpan]) -> OpenSpans {
        let mut changes = FxHashMap::default();
        let mut from = 0;
        for of_thread in spans.chunk_by(|a, b| a.row.thread == b.row.thread) {
            let indices = (from..).zip(of_thread).filter(|(_, span)| !span.any_thread);
            changes
                .insert(of_thread[0].row.thread, of_one_thread(spans, indices.map(|(at, _)| at)));
            from += of_thread.len() as u32;
        }
        OpenSpans { changes }
    }

    /// Returns the innermost span of a thread at a moment.
    pub fn at(&self, thread: ThreadIndex, time_ns: u64) -> Option<u32> {
        let changes = self.changes.get(&thread)?;
        let after = changes.partition_point(|(from_ns, _)| *from_ns <= time_ns);
        changes[..after].last().map(|(_, at)| *at).filter(|at| *at != NONE)
    }

    /// Returns the innermost spans of a thread over an interval, each with its time, ns.
    pub fn within(
        &self,
        thread: ThreadIndex,
        interval: Interval,
    ) -> impl Iterator<Item = (u32, u64)> {
        let changes = self.changes.get(&thread).map_or(&[][..], Vec::as_slice);
        let after = changes.partition_point(|(from_ns, _)| *from_ns <= interval.start);
        let first = after.saturating_sub(1);
        let ends = changes[first..].iter().skip(1).map(|(to_ns, _)| *to_ns).chain([u64::MAX]);
        let parts = changes[first..].iter().zip(ends);
        let parts = parts.take_while(move |((from_ns, _), _)| *from_ns < interval.end);
        parts.filter(|((_, at), _)| *at != NONE).filter_map(move |((from_ns, at), to_ns)| {
            let ns = Interval::new(*from_ns, to_ns).overlap(interval).length();
            (ns > 0).then_some((*at, ns))
        })
    }
}

fn of_one_thread(spans: &[OwnSpan], indices: impl Iterator<Item = u32>) -> Vec<(u64, u32)> {
    let mut sweep = Sweep::default();
    for at in indices.filter(|at| spans[*at as usize].row.duration_ns > 0) {
        let span = &spans[at as usize];
        sweep.close(span.row.start_ns);
        sweep.open.push(at);
        sweep.ends.push(Reverse((span.end_ns(), at)));
        sweep.change(span.row.start_ns, at);
    }
    sweep.close(u64::MAX);
    sweep.changes
}

/// Sweeps over a thread's spans in order of their beginnings. They may be nested thousands deep.
#[derive(Default)]
struct Sweep {
    changes: Vec<(u64, u32)>,
    /// Open spans in order of their beginnings. Ended spans may be among them, but the last one is
    /// open.
    open: Vec<u32>,
    over: FxHashSet<u32>,
    ends: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Sweep {
    /// Closes the spans that end at or before a moment.
    fn close(&mut self, until_ns: u64) {
        while let Some(Reverse((end_ns, at))) = self.ends.peek().copied()
            && end_ns <= until_ns
        {
            self.ends.pop();
            self.over.insert(at);
            while let Some(last) = self.open.pop_if(|last| self.over.contains(last)) {
                self.over.remove(&last);
            }
            self.change(end_ns, self.open.last().copied().unwrap_or(NONE));
        }
    }

    fn change(&mut self, from_ns: u64, at: u32) {
        match self.changes.last_mut() {
            Some(last) if last.0 == from_ns => last.1 = at,
            _ => self.changes.push((from_ns, at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tprof_trace::model::NamedSpan;

    fn spans(rows: &[(u64, u64)]) -> Vec<OwnSpan> {
        let mut rows = rows.to_vec();
        rows.sort_by_key(|(start_ns, length_ns)| (*start_ns, Reverse(*length_ns)));
        let span = |(start_ns, duration_ns)| OwnSpan {
            row: NamedSpan { start_ns, duration_ns, ..NamedSpan::default() },
            any_thread: false,
            flops: 0,
            bytes: None,
            category: None,
            parent: None,
        };
        rows.into_iter().map(span).collect()
    }

    #[test]
    fn spans_may_be_nested_deep() {
        let depth = 200_000;
        let rows: Vec<(u64, u64)> = (0..depth).map(|at| (at, 2 * (depth - at))).collect();
        let open = OpenSpans::of(&spans(&rows));
        assert_eq!(open.at(0, depth - 1), Some(depth as u32 - 1));
        assert_eq!(open.at(0, depth + 2), Some(depth as u32 - 3));
        assert_eq!(open.at(0, 2 * depth), None);
    }

    proptest! {
        #[test]
        fn the_innermost_span_is_the_open_one_that_began_last(
            rows in prop::collection::vec((0_u64..60, 0_u64..30), 0..20),
            time_ns in 0_u64..100,
            length_ns in 0_u64..50,
        ) {
            let spans = spans(&rows);
            let open = OpenSpans::of(&spans);
            let holds = |at: u64| {
                spans.iter().rposition(|span| (span.row.start_ns..span.end_ns()).contains(&at))
            };
            prop_assert_eq!(open.at(0, time_ns).map(|at| at as usize), holds(time_ns));
            let interval = Interval::new(time_ns, time_ns + length_ns);
            let parts: u64 = open.within(0, interval).map(|(_, ns)| ns).sum();
            let expected = (time_ns..time_ns + length_ns).filter(|at| holds(*at).is_some());
            prop_assert_eq!(parts, expected.count() as u64);
        }
    }
}
