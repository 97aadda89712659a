//! Decodes the heap records of one ring, one after the other.

use crate::targets::heap::HeapOp;
use std::sync::atomic::{AtomicU64, Ordering::*};
use tprof_trace::model::ThreadIndex;
use tprof_wire::record::{self, Kind};

/// Number of records between looking up a record's block and applying the record.
const AHEAD: usize = 32;
/// Number of records between fetching a record's cache line from the writer's core and reading the
/// record.
const LINES_AHEAD: usize = AHEAD + 64;

/// Reads the heap records of a chunk one after the other.
pub(super) struct HeapRecords<'r> {
    /// The slots of the chunk that are not read yet.
    slots: &'r [[AtomicU64; 2]],
    thread: ThreadIndex,
    /// Clock of the last record that was read.
    pub clock: u64,
}

impl<'r> HeapRecords<'r> {
    /// Reads the records of `thread` in these slots. `clock` is the clock of the record before
    /// them.
    pub fn new(slots: &'r [[AtomicU64; 2]], thread: ThreadIndex, clock: u64) -> HeapRecords<'r> {
        HeapRecords { slots, thread, clock }
    }

    /// Returns the number of slots that are not read yet.
    pub fn left(&self) -> usize {
        self.slots.len()
    }

    /// Reads the next record; `None` if the next slot is empty or holds something other than a heap
    /// record.
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

    /// Returns the clock of the free of the block that `op` allocates, if that free is the next
    /// record, and reads that record.
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

    /// Returns the addresses of the first records, which [`Self::address_ahead`] never returns.
    pub fn first_addresses(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().take(AHEAD).map(|slot| record::address(slot[0].load(Relaxed)))
    }

    /// Returns the address of the record that comes [`AHEAD`] records later. Also fetches the cache
    /// line of a record that comes later still.
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
        // SAFETY: `_slot` is a reference and so a valid address, and a prefetch only affects
        // caches.
        unsafe { _mm_prefetch::<{ _MM_HINT_T0 }>((&raw const *_slot).cast()) };
    }
}
