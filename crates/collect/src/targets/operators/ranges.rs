//! Ranges of PyTorch's: a record when one begins, and one when it ends, perhaps in another thread.

use super::OverOperator;
use std::collections::HashMap;
use tprof_trace::model::{SpanKind, ThreadIndex};
use tprof_wire::operators::RangeEdge;

/// Ranges that may be open at one time in one process.
const OPEN_MOST: usize = 1 << 16;
/// Ends that are remembered without a beginning: it may be in a ring that is read later, or was
/// not recorded.
const EARLY_MOST: usize = 1 << 12;

#[derive(Clone, Copy, Debug)]
struct OpenRange {
    name: u32,
    edge: RangeEdge,
    thread: ThreadIndex,
    start_ns: u64,
}

/// See the module. By address of the range's object, which is another range's later.
#[derive(Debug, Default)]
pub struct OpenRanges {
    open: HashMap<u64, Vec<OpenRange>>,
    len: usize,
    /// Ends that were read before their beginnings, in order of time: an address may have had
    /// several ranges meanwhile.
    early: HashMap<u64, Vec<u64>>,
    early_len: usize,
    endless: u64,
}

/// What is left at a process's end.
pub struct RangeOver {
    /// Ranges that were open: they last until then.
    pub cut: Vec<OverOperator>,
    /// Ranges without a recorded end.
    pub endless: u64,
}

impl OpenRanges {
    /// A range begins. It is over already if its end was read first.
    pub fn opens(
        &mut self,
        name: u32,
        edge: RangeEdge,
        thread: ThreadIndex,
        start_ns: u64,
    ) -> Option<OverOperator> {
        let range = OpenRange { name, edge, thread, start_ns };
        if let Some(end_ns) = self.early_end(edge.object, start_ns) {
            return Some(range.over(end_ns));
        }
        if self.len >= OPEN_MOST {
            self.endless += 1;
            return None;
        }
        self.len += 1;
        self.open.entry(edge.object).or_default().push(range);
        None
    }

    /// A range ends: the last one of this address that began before.
    pub fn closes(&mut self, edge: RangeEdge, end_ns: u64) -> Option<OverOperator> {
        let began = |ranges: &[OpenRange]| ranges.iter().rposition(|r| r.start_ns <= end_ns);
        let found = self.open.get_mut(&edge.object).and_then(|ranges| {
            let at = began(ranges)?;
            let later = ranges.split_off(at + 1);
            let range = ranges.pop()?;
            // Its object is this range's now: what had it before is over, its end was lost.
            let without_end = ranges.len();
            *ranges = later;
            Some((range, without_end))
        });
        let Some((range, without_end)) = found else {
            if self.early_len >= EARLY_MOST {
                self.early.clear();
                self.early_len = 0;
            }
            let ends = self.early.entry(edge.object).or_default();
            ends.insert(ends.partition_point(|end| *end <= end_ns), end_ns);
            self.early_len += 1;
            return None;
        };
        self.len -= 1 + without_end;
        self.endless += without_end as u64;
        Some(range.over(end_ns))
    }

    /// Takes out the first end of this address after `start_ns`; those before are of ranges that
    /// were not recorded.
    fn early_end(&mut self, object: u64, start_ns: u64) -> Option<u64> {
        let ends = self.early.get_mut(&object)?;
        let before = ends.partition_point(|end| *end < start_ns);
        let taken = ends.len().min(before + 1);
        let found = ends.drain(..taken).nth(before);
        self.early_len -= taken;
        if ends.is_empty() {
            self.early.remove(&object);
        }
        found
    }

    /// Ends what is open.
    pub fn finish(&mut self, end_ns: u64) -> RangeOver {
        let mut endless = std::mem::take(&mut self.endless);
        let mut cut = Vec::new();
        for (_, mut ranges) in std::mem::take(&mut self.open) {
            let last = ranges.pop();
            endless += ranges.len() as u64;
            cut.extend(last.map(|range| range.over(end_ns.max(range.start_ns))));
        }
        cut.sort_by_key(|over| over.start_ns);
        self.len = 0;
        RangeOver { cut, endless }
    }
}

impl OpenRange {
    fn over(&self, end_ns: u64) -> OverOperator {
        OverOperator {
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

    fn times(over: Option<OverOperator>) -> Option<(u32, u64, u64)> {
        over.map(|over| (over.name, over.start_ns, over.duration_ns))
    }

    #[test]
    fn a_range_ends_in_another_thread_whichever_ring_is_read_first() {
        let mut ranges = OpenRanges::default();
        assert!(ranges.opens(1, edge(8), 0, 10).is_none());
        assert_eq!(times(ranges.closes(edge(8), 30)), Some((1, 10, 20)));
        assert!(ranges.closes(edge(8), 60).is_none());
        assert_eq!(times(ranges.opens(2, edge(8), 0, 50)), Some((2, 50, 10)));
        // The end of what began while recording was off ends nothing later.
        assert!(ranges.closes(edge(8), 70).is_none());
        assert!(ranges.opens(3, edge(8), 0, 80).is_none());
        let over = ranges.finish(100);
        assert_eq!((over.cut.len(), over.endless), (1, 0));
        assert_eq!(times(Some(over.cut[0])), Some((3, 80, 20)));
    }

    #[test]
    fn ends_at_one_address_that_are_read_first_each_end_the_range_that_began_before() {
        let mut ranges = OpenRanges::default();
        // Of the first no beginning was recorded.
        for end in [5, 20, 40] {
            assert!(ranges.closes(edge(8), end).is_none());
        }
        assert_eq!(times(ranges.opens(1, edge(8), 0, 10)), Some((1, 10, 10)));
        assert_eq!(times(ranges.opens(2, edge(8), 0, 30)), Some((2, 30, 10)));
        assert!(ranges.opens(3, edge(8), 0, 50).is_none());
        assert_eq!((ranges.early_len, ranges.early.len()), (0, 0));
    }

    #[test]
    fn of_ranges_at_one_address_the_last_that_began_ends() {
        let mut ranges = OpenRanges::default();
        assert!(ranges.opens(1, edge(8), 0, 10).is_none());
        assert!(ranges.opens(2, edge(8), 0, 20).is_none());
        assert!(ranges.opens(3, edge(8), 0, 40).is_none());
        // Of the first no end was recorded, the third began later.
        assert_eq!(times(ranges.closes(edge(8), 30)), Some((2, 20, 10)));
        assert_eq!(times(ranges.closes(edge(8), 45)), Some((3, 40, 5)));
        let over = ranges.finish(50);
        assert_eq!((over.cut.len(), over.endless), (0, 1));
    }
}
