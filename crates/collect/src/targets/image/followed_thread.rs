//! The state of reading one thread's ring.

use crate::targets::heap::HeapOp;
use tprof_ring::RingReader;
use tprof_trace::model::ThreadIndex;

/// A thread of the image, as the collector follows it.
pub struct FollowedThread {
    /// The thread's slot in the region.
    pub slot: usize,
    /// The thread's row in the trace.
    pub index: ThreadIndex,
    /// The thread's id.
    pub tid: u32,
    /// The position in the thread's ring.
    pub(super) ring: RingReader,
    /// Time when the thread ended according to its own record, ns.
    pub ended: Option<u64>,
    /// The process that the thread is spawning: path, verdict and time (ns).
    pub spawning: Option<(String, u32, u64)>,
    /// Bytes that this pass has read so far.
    pub(super) taken: usize,
    /// Whether the last pass read everything in the ring.
    pub(super) whole: bool,
    /// Number and bytes of the allocations that were read since [`Self::counts`] was set.
    pub allocated: (u64, u64),
    /// Whether allocations are counted; set once the thread records spans. The count at the start
    /// and at the end of a span tells which allocations are inside. Clocks can't tell that, because
    /// successive records may have the same clock: an EPYC's counter moves in steps of 26 ticks (10
    /// ns), and reads within a step are a tick (0.4 ns) apart. A ring, however, keeps the records
    /// in order.
    pub counts: bool,
}

impl FollowedThread {
    /// Counts the allocations among events from the ring, if [`Self::counts`] is set.
    pub(super) fn count<'o>(&mut self, ops: impl IntoIterator<Item = &'o HeapOp>) {
        if self.counts {
            for op in ops.into_iter().filter(|op| op.allocates()) {
                self.add(1, op.size);
            }
        }
    }

    /// Adds allocations and their bytes to the count.
    pub(super) fn add(&mut self, allocations: u64, bytes: u64) {
        let (count, all) = self.allocated;
        self.allocated = (count.wrapping_add(allocations), all.wrapping_add(bytes));
    }
}
