//! Sums the counters that the threads of a program image have in their slots of the region.

use std::sync::atomic::Ordering::Relaxed;
use tprof_wire::region::ThreadSlot;

/// Sums over threads. Each field has the name of the counter or function of [`ThreadSlot`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotTotals {
    /// Number of allocations.
    pub allocations: u64,
    /// Number of blocks that were freed.
    pub frees: u64,
    /// Bytes that the program requested.
    pub allocated_bytes: u64,
    /// Change of live bytes that the threads have not added to the region's sum yet.
    pub live_delta: i64,
    /// Ticks of the clock that threads waited on full rings.
    pub wait_ticks: u64,
    /// Number of waits on full rings.
    pub waits: u64,
    /// Number of records that were dropped.
    pub lost: u64,
    /// Ticks spent taking stacks, an estimate.
    pub stack_ticks: u64,
    /// Ticks spent in callbacks of operators, an estimate.
    pub operator_ticks: u64,
}

impl SlotTotals {
    /// Adds a thread's counters. Sums wrap, because the thread's process can write anything there.
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
        self.live_delta = self.live_delta.wrapping_add(slot.live_delta());
    }
}
