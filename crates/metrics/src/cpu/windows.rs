//! Selects the samples that `--within` keeps.

use rustc_hash::FxHashMap;
use tprof_document::text_and_number;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::{HostSpan, RankTrace};
use tprof_trace::model::{Sample, SpanKind, ThreadIndex, ThreadState};

use super::ranges::range_name;

/// `Some(true)` if a row is a sample of a running thread, `Some(false)` if the row is time on a
/// core without a sample.
pub(super) fn is_sample(row: &Sample) -> Option<bool> {
    (row.state == ThreadState::Running).then_some(row.cpu.is_some())
}

/// The times that `--within` keeps, by thread.
pub(super) struct Windows {
    of: FxHashMap<ThreadIndex, Cover>,
    /// Number of ranges that were chosen.
    pub count: usize,
}

impl Windows {
    /// Finds the ranges with a text in their name; with `:N`, only the Nth of these.
    pub fn of(rank: &RankTrace<'_>, within: &str) -> Windows {
        let (text, number) = text_and_number(within);
        let named = |span: &&HostSpan| range_name(rank, span.category, span.name).contains(text);
        let mut found: Vec<&HostSpan> = rank.spans(SpanKind::Nvtx).iter().filter(named).collect();
        found.sort_by_key(|span| (span.start_ns, std::cmp::Reverse(span.end_ns())));
        if let Some(number) = number {
            found = found.into_iter().skip(number).take(1).collect();
        }
        let count = found.len();
        let mut of: FxHashMap<ThreadIndex, Vec<Interval>> = FxHashMap::default();
        for span in found {
            of.entry(span.thread).or_default().push(span.interval());
        }
        let of = of.into_iter().map(|(thread, all)| (thread, all.into_iter().collect())).collect();
        Windows { of, count }
    }

    /// Whether a row is a sample within one of the windows.
    pub fn hold(&self, row: &Sample) -> bool {
        is_sample(row) == Some(true) && self.hold_at(row.thread, row.time_ns)
    }

    /// Whether a time of a thread lies within one of the windows.
    pub fn hold_at(&self, thread: ThreadIndex, time_ns: u64) -> bool {
        let Some(cover) = self.of.get(&thread) else { return false };
        let parts = cover.parts();
        let after = parts.partition_point(|part| part.start <= time_ns);
        after.checked_sub(1).is_some_and(|last| time_ns < parts[last].end)
    }
}
