//! Heap records of one ring, decoded as they are taken.

use crate::targets::heap::HeapOp;
use std::sync::atomic::{AtomicU64, Ordering::*};
use tprof_trace::model::ThreadIndex;
use tprof_wire::record::{self, Kind};

/// Records whose blocks are looked up before they are taken.
const AHEAD: usize = 32;
/// Records whose cache lines are fetched from the writer's core before they are read.
const LINES_AHEAD: usize = AHEAD + 64;

/// See the module.
pub(super) struct HeapRecords<'r> {
    /// Remaining slots of the chunk.
    slots: &'r [[AtomicU64; 2]],
    thread: ThreadIndex,
    /// Clock of the last record that was taken.
    pub clock: u64,
}

impl<'r> HeapRecords<'r> {
    /// The records in these slots, by a thread; `clock` is that of the record before.
    pub fn new(slots: &'r [[AtomicU64; 2]], thread: ThreadIndex, clock: u64) -> HeapRecords<'r> {
        HeapRecords { slots, thread, clock }
    }

    /// Slots that are left.
    pub fn left(&self) -> usize {
        self.slots.len()
    }

    /// Takes the next record; `None` where the next slot holds something else, or nothing.
    #[inline(always)]
    pub fn next(&mut self) -> Option<HeapOp> {
        let (slot, rest) = self.slots.split_first()?;
        let word0 = slot[0].load(Acquire);
        let kind = (word0 & 15) as u32;
        if kind.wrapping_sub(1) > 4 {
            return None;
        }
        let word1 = slot[1].load(Relaxed);
        self.slots = rest;
        self.clock = record::clock(word1, self.clock);
        Some(HeapOp {
            clock: self.clock,
            address: record::address(word0),
            size: record::size(word0, word1),
            stack: record::stack(word1),
            tag: self.thread << 3 | kind,
        })
    }

    /// Returns when a block that was just allocated is freed, if that is the very next record,
    /// which is then taken.
    #[inline(always)]
    pub fn end_of(&mut self, op: &HeapOp) -> Option<u64> {
        if op.tag & 7 != Kind::Alloc as u32 {
            return None;
        }
        let (slot, rest) = self.slots.split_first()?;
        if slot[0].load(Acquire) != record::heap(Kind::Free, op.address, 0, 0, 0).0 {
            return None;
        }
        self.slots = rest;
        self.clock = record::clock(slot[1].load(Relaxed), self.clock);
        Some(self.clock)
    }

    /// The addresses of the first records, of which [`Self::address_ahead`] does not return any.
    pub fn first_addresses(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().take(AHEAD).map(|slot| record::address(slot[0].load(Relaxed)))
    }

    /// The address of a record that is taken after some others. Fetches the cache line of one
    /// that is taken later still.
    #[inline(always)]
    pub fn address_ahead(&self) -> Option<u64> {
        if let Some(slot) = self.slots.get(LINES_AHEAD) {
            fetch(slot);
        }
        self.slots.get(AHEAD).map(|slot| record::address(slot[0].load(Relaxed)))
    }
}

/// Fetches the cache line of a slot.
#[inline(always)]
#[allow(unsafe_code)]
fn fetch(_slot: &[AtomicU64; 2]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of a valid address has no effect but on caches.
        unsafe { _mm_prefetch::<{ _MM_HINT_T0 }>((&raw const *_slot).cast()) };
    }
}
