//! A thread of an image, as the collector follows it through its ring.

use crate::targets::heap::HeapOp;
use tprof_trace::model::ThreadIndex;
use tprof_wire::record::SLOT_BYTES;
use tprof_wire::region::ChunkRef;

/// A thread of the image, as the collector follows it.
pub struct FollowedThread {
    /// Slot in the region.
    pub slot: usize,
    /// Row in the trace.
    pub index: ThreadIndex,
    /// Id of the thread.
    pub tid: u32,
    pub(super) chunk: ChunkRef,
    pub(super) base: usize,
    pub(super) bytes: usize,
    pub(super) at: usize,
    pub(super) clock: u64,
    pub(super) hole_since: u64,
    pub(super) partial_at: u64,
    /// The thread's record of its end, then.
    pub ended: Option<u64>,
    /// Path and verdict of the spawn that is under way.
    pub spawning: Option<(String, u32, u64)>,
    /// Bytes taken in this pass.
    pub(super) taken: usize,
    /// The last pass read all that its ring held.
    pub(super) whole: bool,
    /// Its recorded allocations so far, once [`Self::counts`], and the bytes asked for.
    pub allocated: (u64, u64),
    /// Whether it has spans, whose records need the count: a ring holds them in their order, while
    /// clocks of records that follow each other may be the same (an EPYC's counter moves in steps
    /// of 26 ticks, 10 ns, and reads within a step are a tick apart, 0.4 ns).
    pub counts: bool,
}

impl FollowedThread {
    /// Begins to read a chunk.
    pub(super) fn enter(&mut self, chunk: ChunkRef) {
        self.chunk = chunk;
        (self.base, self.bytes) = chunk.place().unwrap_or((0, 0));
        self.at = SLOT_BYTES;
    }

    /// Counts records that were taken from its ring, if they are to be counted.
    pub(super) fn count<'o>(&mut self, ops: impl IntoIterator<Item = &'o HeapOp>) {
        if self.counts {
            for op in ops.into_iter().filter(|op| op.allocates()) {
                self.add(1, op.size);
            }
        }
    }

    /// Adds allocations and their bytes.
    pub(super) fn add(&mut self, allocations: u64, bytes: u64) {
        let (count, all) = self.allocated;
        self.allocated = (count.wrapping_add(allocations), all.wrapping_add(bytes));
    }
}
