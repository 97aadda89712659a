//! Numbers the streams of a rank.

use rustc_hash::FxHashMap;

use super::rows::{StreamIndex, StreamKey};

/// The streams that were seen so far, each with an index.
#[derive(Default)]
pub(super) struct StreamTable {
    index: FxHashMap<StreamKey, StreamIndex>,
    /// The stream of the last row, as a cache: successive rows are mostly of the same stream.
    last: Option<(StreamKey, StreamIndex)>,
}

impl StreamTable {
    /// Starts with these streams, whose indices are their places.
    pub(super) fn new(streams: &[StreamKey]) -> StreamTable {
        StreamTable { index: streams.iter().copied().zip(0..).collect(), last: None }
    }

    pub(super) fn index(&mut self, key: StreamKey) -> StreamIndex {
        if let Some((_, index)) = self.last.filter(|last| last.0 == key) {
            return index;
        }
        let next = self.index.len() as StreamIndex;
        let index = *self.index.entry(key).or_insert(next);
        self.last = Some((key, index));
        index
    }

    /// Returns the streams in order, and the new index for each old one.
    pub(super) fn sorted(self) -> (Vec<StreamKey>, Vec<StreamIndex>) {
        let mut rows: Vec<(StreamKey, StreamIndex)> = self.index.into_iter().collect();
        rows.sort_unstable();
        let mut order = vec![0; rows.len()];
        for ((_, old), new) in rows.iter().zip(0..) {
            order[*old as usize] = new;
        }
        (rows.into_iter().map(|(key, _)| key).collect(), order)
    }
}
