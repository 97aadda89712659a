//! Finds the ranges that a thread was in at a given moment.
//!
//! Ranges of a thread mostly nest, but ranges that are started and ended by handle may overlap
//! otherwise. So the innermost range is defined as the one that began last and is still open.

use rustc_hash::FxHashMap;
use tprof_rank::{HostSpan, RankTrace};
use tprof_trace::model::{NameId, SpanKind, ThreadIndex};

/// Identifies a chain of open ranges, each within the one before; 0 is the empty chain.
pub type ChainId = u32;
/// A range's domain and text.
type DomainAndText = (NameId, NameId);

/// A range, with the chain around it.
struct Chain {
    outer: ChainId,
    key: DomainAndText,
}

/// The ranges of all threads.
#[derive(Default)]
pub struct ThreadRanges {
    chains: Vec<Chain>,
    ids: FxHashMap<(ChainId, DomainAndText), ChainId>,
    /// For each thread, in order of time: the moments at which its open ranges change, and the
    /// ranges that are open from then on.
    changes: FxHashMap<ThreadIndex, Vec<(u64, ChainId)>>,
}

impl ThreadRanges {
    /// Reads the NVTX ranges of a rank, which must have been loaded.
    pub fn of(rank: &RankTrace<'_>) -> ThreadRanges {
        ThreadRanges::of_spans(rank.spans(SpanKind::Nvtx))
    }

    /// Collects the changes of each thread. The spans are in order of thread, then of their starts.
    fn of_spans(spans: &[HostSpan]) -> ThreadRanges {
        let mut ranges = ThreadRanges::default();
        for spans in spans.chunk_by(|a, b| a.thread == b.thread) {
            // The open ranges in order of their starts: end and key.
            let mut open: Vec<(u64, DomainAndText)> = Vec::new();
            let mut changes = Vec::with_capacity(2 * spans.len());
            for span in spans.iter().filter(|span| span.duration_ns > 0) {
                ranges.close(&mut open, span.start_ns, &mut changes);
                open.push((span.end_ns(), (span.category, span.name)));
                let chain = ranges.chain(&open);
                change(&mut changes, span.start_ns, chain);
            }
            ranges.close(&mut open, u64::MAX, &mut changes);
            if let Some(first) = spans.first().filter(|_| !changes.is_empty()) {
                ranges.changes.insert(first.thread, changes);
            }
        }
        ranges
    }

    /// Ends all open ranges that end at or before a time.
    fn close(
        &mut self,
        open: &mut Vec<(u64, DomainAndText)>,
        until_ns: u64,
        changes: &mut Vec<(u64, ChainId)>,
    ) {
        while let Some(end_ns) = open.iter().map(|range| range.0).min().filter(|e| *e <= until_ns) {
            open.retain(|range| range.0 != end_ns);
            let chain = self.chain(open);
            change(changes, end_ns, chain);
        }
    }

    /// Returns the id of a chain of open ranges, given from the outermost on.
    fn chain(&mut self, open: &[(u64, DomainAndText)]) -> ChainId {
        let mut at = 0;
        for (_, key) in open {
            let next = self.chains.len() as ChainId + 1;
            let id = *self.ids.entry((at, *key)).or_insert(next);
            if id == next {
                self.chains.push(Chain { outer: at, key: *key });
            }
            at = id;
        }
        at
    }

    /// Whether there are no ranges.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the chain of ranges that a thread was in at a time.
    pub fn at(&self, thread: ThreadIndex, time_ns: u64) -> ChainId {
        let Some(changes) = self.changes.get(&thread) else { return 0 };
        let after = changes.partition_point(|(from_ns, _)| *from_ns <= time_ns);
        after.checked_sub(1).map_or(0, |last| changes[last].1)
    }

    /// Returns the domain and the text of each range of a chain, innermost first.
    pub fn keys(&self, chain: ChainId) -> impl Iterator<Item = DomainAndText> + '_ {
        let mut at = chain;
        std::iter::from_fn(move || {
            let chain = self.chains.get(at.checked_sub(1)? as usize)?;
            at = chain.outer;
            Some(chain.key)
        })
    }
}

/// Records which chain is open from a time on.
fn change(changes: &mut Vec<(u64, ChainId)>, from_ns: u64, chain: ChainId) {
    match changes.last_mut() {
        Some(last) if last.0 == from_ns => last.1 = chain,
        _ => changes.push((from_ns, chain)),
    }
}

/// The displayed name of a range: its domain and its text.
pub(super) fn range_name(rank: &RankTrace<'_>, domain: NameId, text: NameId) -> String {
    match rank.name(domain) {
        "" => rank.name(text).to_owned(),
        domain => format!("{domain}:{}", rank.name(text)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tprof_rank::nesting_order;

    use super::*;

    fn spans(rows: &[(u32, u64, u64)]) -> Vec<HostSpan> {
        let mut spans: Vec<HostSpan> = (rows.iter().zip(1..))
            .map(|((thread, start_ns, duration_ns), name)| {
                let (start_ns, duration_ns) = (*start_ns, *duration_ns);
                let name = NameId(name);
                HostSpan { start_ns, duration_ns, name, thread: *thread, ..HostSpan::default() }
            })
            .collect();
        spans.sort_by_key(nesting_order);
        spans
    }

    fn names(ranges: &ThreadRanges, thread: u32, time_ns: u64) -> Vec<u32> {
        ranges.keys(ranges.at(thread, time_ns)).map(|key| key.1.0).collect()
    }

    #[test]
    fn the_innermost_is_the_one_that_began_last() {
        let rows = [(0, 10, 90), (0, 20, 30), (0, 40, 40), (1, 0, 5), (0, 100, 10)];
        let ranges = ThreadRanges::of_spans(&spans(&rows));
        assert_eq!(names(&ranges, 0, 9), [0_u32; 0]);
        assert_eq!(names(&ranges, 0, 10), [1]);
        assert_eq!(names(&ranges, 0, 45), [3, 2, 1]);
        assert_eq!(names(&ranges, 0, 50), [3, 1], "2 is over, although 3 is not");
        assert_eq!(names(&ranges, 0, 100), [5]);
        assert_eq!(names(&ranges, 0, 110), [0_u32; 0]);
        assert_eq!(names(&ranges, 1, 4), [4]);
        assert_eq!(names(&ranges, 2, 4), [0_u32; 0]);
    }

    proptest! {
        #[test]
        fn a_moment_lies_in_all_ranges_around_it(
            rows in prop::collection::vec((0..2_u32, 0..60_u64, 0..30_u64), 0..20),
            thread in 0..2_u32,
            time_ns in 0..100_u64,
        ) {
            let ranges = ThreadRanges::of_spans(&spans(&rows));
            let mut found = names(&ranges, thread, time_ns);
            found.sort_unstable();
            let around = |(of, start, length): &(u32, u64, u64)| {
                *of == thread && (*start..start + length).contains(&time_ns)
            };
            let all: Vec<u32> =
                (rows.iter().zip(1..)).filter(|(row, _)| around(row)).map(|(_, n)| n).collect();
            prop_assert_eq!(found, all);
        }
    }
}
