//! A thread of an image, as the collector follows it through its ring.

use tprof_trace::model::ThreadIndex;
use tprof_wire::record::SLOT_BYTES;
use tprof_wire::region::ChunkRef;

/// A thread of the image, as the collector follows it.
pub struct Follow {
    /// Slot in the region.
    pub slot: usize,
    /// Row in the trace.
    pub index: ThreadIndex,
    /// Thread id.
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
}

impl Follow {
    /// Begins to read a chunk.
    pub(super) fn enter(&mut self, chunk: ChunkRef) {
        self.chunk = chunk;
        (self.base, self.bytes) = chunk.place().unwrap_or((0, 0));
        self.at = SLOT_BYTES;
    }
}
