//! Pairs the beginnings and ends of PyTorch's ranges. A range writes one record when it begins and
//! one when it ends, perhaps in another thread.
//!
//! Both records contain the address of the range's object, and another range may reuse this address
//! as soon as the range has ended. Rings are read one after the other, so a beginning or end (an
//! edge) waits until all threads' edges up to its time have been read. Then the edges are paired in
//! order of time.

use super::FinishedOperator;
use std::collections::HashMap;
use tprof_trace::model::{SpanKind, ThreadIndex};
use tprof_wire::operators::RangeEdge;

/// Number of ranges that may be open at the same time in one process.
const MAX_OPEN: usize = 1 << 16;
/// Number of edges that may wait. If there are more, all are paired at once, although earlier ones
/// may follow.
const MAX_KEPT: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
struct OpenRange {
    name: u32,
    edge: RangeEdge,
    thread: ThreadIndex,
    start_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum Edge {
    Opens(OpenRange),
    Closes { object: u64, end_ns: u64 },
}

/// The open ranges of a process, and the edges that wait to be paired.
#[derive(Debug, Default)]
pub struct OpenRanges {
    /// The edges that wait to be paired, in the order of reading.
    kept: Vec<Edge>,
    /// Open ranges, by address of their object.
    open: HashMap<u64, OpenRange>,
    endless: u64,
}

/// The ranges that are open when a process ends.
pub struct RangesLeft {
    /// The ranges that were still open. They are written as if they had ended with the process.
    pub cut: Vec<FinishedOperator>,
    /// Number of ranges whose end was not recorded, so that they aren't written.
    pub endless: u64,
}

impl OpenRanges {
    /// Adds the beginning of a range.
    pub fn opens(&mut self, name: u32, edge: RangeEdge, thread: ThreadIndex, start_ns: u64) {
        self.kept.push(Edge::Opens(OpenRange { name, edge, thread, start_ns }));
    }

    /// Adds the end of a range.
    pub fn closes(&mut self, edge: RangeEdge, end_ns: u64) {
        self.kept.push(Edge::Closes { object: edge.object, end_ns });
    }

    /// Pairs the edges before `until_ns`, and returns the ranges that have ended. The caller has
    /// read the records of all threads before that time.
    pub fn over(&mut self, until_ns: u64) -> Vec<FinishedOperator> {
        let mut edges = std::mem::take(&mut self.kept);
        if edges.len() < MAX_KEPT {
            self.kept = edges.extract_if(.., |edge| edge.time_ns() >= until_ns).collect();
        }
        // The sort is stable, so edges of one thread with the same time stay in their order.
        edges.sort_by_key(Edge::time_ns);
        edges.into_iter().filter_map(|edge| self.joined(edge)).collect()
    }

    fn joined(&mut self, edge: Edge) -> Option<FinishedOperator> {
        match edge {
            Edge::Closes { object, end_ns } => {
                // If the range began while recording was off, its beginning is unknown and its end
                // is ignored.
                Some(self.open.remove(&object)?.until(end_ns))
            }
            Edge::Opens(_) if self.open.len() >= MAX_OPEN => {
                self.endless += 1;
                None
            }
            Edge::Opens(range) => {
                // Another range now uses the object, so the range that used it before has ended,
                // and the record of its end was lost.
                let before = self.open.insert(range.edge.object, range);
                self.endless += u64::from(before.is_some());
                None
            }
        }
    }

    /// Returns the ids of the names of the open ranges, and the times when they began.
    pub fn open(&self) -> impl Iterator<Item = (u32, u64)> {
        self.open.values().map(|range| (range.name, range.start_ns))
    }

    /// Ends the ranges that are still open. The caller has paired all edges with [`Self::over`].
    pub fn finish(&mut self, end_ns: u64) -> RangesLeft {
        let open = std::mem::take(&mut self.open).into_values();
        let mut cut: Vec<_> = open.map(|range| range.until(end_ns.max(range.start_ns))).collect();
        cut.sort_by_key(|over| over.start_ns);
        RangesLeft { cut, endless: std::mem::take(&mut self.endless) }
    }
}

impl Edge {
    fn time_ns(&self) -> u64 {
        match self {
            Edge::Opens(range) => range.start_ns,
            Edge::Closes { end_ns, .. } => *end_ns,
        }
    }
}

impl OpenRange {
    fn until(&self, end_ns: u64) -> FinishedOperator {
        FinishedOperator {
            kind: SpanKind::Annotation,
            name: self.name,
            inputs: self.edge.inputs,
            thread: self.thread,
            start_ns: self.start_ns,
            duration_ns: end_ns.saturating_sub(self.start_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(object: u64) -> RangeEdge {
        RangeEdge { object, ..RangeEdge::default() }
    }

    fn times(over: Vec<FinishedOperator>) -> Vec<(u32, u64, u64)> {
        over.iter().map(|over| (over.name, over.start_ns, over.duration_ns)).collect()
    }

    #[test]
    fn ranges_at_one_address_are_paired_whichever_ring_is_read_first() {
        // The first and the third range end in another thread, the second one in its own.
        type Step = (bool, u64);
        let of_one: [Step; 4] = [(true, 10), (true, 30), (false, 40), (true, 50)];
        let of_others: [Step; 2] = [(false, 20), (false, 60)];
        for others_first in [false, true] {
            let mut ranges = OpenRanges::default();
            let (one, other) = (&of_one[..], &of_others[..]);
            let read = if others_first { [other, one] } else { [one, other] };
            for (opens, time) in read.concat() {
                match opens {
                    true => ranges.opens(time as u32, edge(8), 0, time),
                    false => ranges.closes(edge(8), time),
                }
            }
            assert_eq!(times(ranges.over(u64::MAX)), [(10, 10, 10), (30, 30, 10), (50, 50, 10)]);
            let over = ranges.finish(100);
            assert_eq!((over.cut.len(), over.endless), (0, 0));
        }
    }

    #[test]
    fn an_end_waits_until_all_earlier_records_are_read() {
        let mut ranges = OpenRanges::default();
        ranges.opens(1, edge(8), 0, 10);
        // The end of the second range is read first, then its beginning and the end of the first
        // range.
        ranges.closes(edge(8), 40);
        assert!(ranges.over(15).is_empty());
        ranges.opens(2, edge(8), 0, 30);
        ranges.closes(edge(8), 20);
        assert_eq!(times(ranges.over(100)), [(1, 10, 10), (2, 30, 10)]);
    }

    #[test]
    fn a_range_without_an_end_is_counted_and_an_end_without_a_range_ignored() {
        let mut ranges = OpenRanges::default();
        ranges.closes(edge(8), 5);
        ranges.opens(1, edge(8), 0, 10);
        ranges.opens(2, edge(8), 0, 20);
        ranges.closes(edge(8), 30);
        ranges.closes(edge(8), 35);
        ranges.opens(3, edge(8), 0, 40);
        assert_eq!(times(ranges.over(u64::MAX)), [(2, 20, 10)]);
        let over = ranges.finish(50);
        assert_eq!((times(over.cut), over.endless), (vec![(3, 40, 10)], 1));
    }
}
