//! Sums the counters of an image's threads.

use std::sync::atomic::Ordering::Relaxed;
use tprof_wire::region::ThreadSlot;

/// Sums of the counters in thread slots. The fields have the names of the counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotTotals {
    #[allow(missing_docs)]
    pub allocations: u64,
    #[allow(missing_docs)]
    pub frees: u64,
    #[allow(missing_docs)]
    pub allocated_bytes: u64,
    #[allow(missing_docs)]
    pub live_delta: i64,
    #[allow(missing_docs)]
    pub wait_ticks: u64,
    #[allow(missing_docs)]
    pub waits: u64,
    #[allow(missing_docs)]
    pub lost: u64,
    #[allow(missing_docs)]
    pub stack_ticks: u64,
    #[allow(missing_docs)]
    pub operator_ticks: u64,
}

impl SlotTotals {
    /// Adds a thread's counters.
    pub fn add(&mut self, slot: &ThreadSlot) {
        let sum = |to: &mut u64, from: u64| *to = to.wrapping_add(from);
        sum(&mut self.allocations, slot.allocations.load(Relaxed));
        sum(&mut self.frees, slot.frees.load(Relaxed));
        sum(&mut self.allocated_bytes, slot.allocated_bytes.load(Relaxed));
        sum(&mut self.wait_ticks, slot.wait_ticks.load(Relaxed));
        sum(&mut self.waits, slot.waits.load(Relaxed));
        sum(&mut self.lost, slot.lost.load(Relaxed));
        sum(&mut self.stack_ticks, slot.stack_ticks.load(Relaxed));
        sum(&mut self.operator_ticks, slot.operator_ticks.load(Relaxed));
        self.live_delta = self.live_delta.wrapping_add(slot.live_delta.load(Relaxed));
    }
}
