//! Joins copies and memsets with the calls that started them.

use rustc_hash::FxHashMap;
use tprof_facts::copies;
use tprof_rank::base::intervals::Interval;
use tprof_rank::{RankTrace, StreamKey};
use tprof_trace::model::{CopyKind, MemoryCopy, NameId};

use crate::finding::{Evidence, Track};

/// A copy or a memset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    /// The row of the trace.
    pub row: MemoryCopy,
    /// The call that started it, as an index.
    pub call: Option<usize>,
}

/// Returns all copies and memsets of a rank, in order of start.
pub(crate) fn all(rank: &RankTrace<'_>) -> Vec<Copy> {
    let mut calls: FxHashMap<(u32, u64), usize> = FxHashMap::default();
    let mut names: FxHashMap<NameId, bool> = FxHashMap::default();
    let mut is_copy = |id| {
        let named = |id| rank.name(id).contains("Memcpy") || rank.name(id).contains("Memset");
        *names.entry(id).or_insert_with(|| named(id))
    };
    for (call, at) in rank.calls.iter().zip(0..) {
        if let (true, Some(number)) = (is_copy(call.name), call.correlation.get()) {
            // A runtime call encloses the driver call that it makes, and `calls` contains the
            // runtime call first. Keep the runtime call.
            calls.entry((call.process, number)).or_insert(at);
        }
    }
    let (rows, _) = rank.file.rows::<MemoryCopy>();
    let call = |row: &MemoryCopy| calls.get(&(row.process, row.correlation?)).copied();
    rows.into_iter().map(|row| Copy { row, call: call(&row) }).collect()
}

impl Copy {
    pub(crate) fn interval(&self) -> Interval {
        Interval::new(self.row.start_ns, self.row.start_ns.saturating_add(self.row.duration_ns))
    }

    pub(crate) fn is_memset(&self) -> bool {
        self.row.kind == CopyKind::Memset
    }

    /// Whether the call could return before the copy was done. The trace may say so; otherwise the
    /// call's name decides. Returns `None` if the call was not recorded either.
    pub(crate) fn is_asynchronous(&self, rank: &RankTrace<'_>) -> Option<bool> {
        let by_name = |call: usize| rank.name(rank.calls[call].name).contains("Async");
        self.row.asynchronous.or_else(|| self.call.map(by_name))
    }

    pub(crate) fn place<'a>(&self, rank: &RankTrace<'a>) -> Evidence<'a> {
        let MemoryCopy { process, device, context, stream, .. } = self.row;
        let name = copies::name(rank.file, &self.row);
        let place = Track::Stream(StreamKey { process, device, context, stream });
        Evidence { interval: self.interval(), place, name }
    }
}
