//! Decodes the heap records of a ring, and prefetches what they will need.

use crate::targets::heap::HeapOp;
use std::sync::atomic::{AtomicU64, Ordering::*};
use tprof_trace::model::ThreadIndex;
use tprof_wire::record::{self, Kind};

/// Number of records between prefetching the table entry of a record's block and applying the
/// record.
const AHEAD: usize = 32;
/// Number of records between fetching a record's cache line from the core of its writer and reading
/// the record.
const LINES_AHEAD: usize = AHEAD + 64;

/// An iterator over the heap records at the front of a chunk's slots.
pub(super) struct HeapRecords<'r> {
    /// The slots of the chunk that are not read yet.
    slots: &'r [[AtomicU64; 2]],
    thread: ThreadIndex,
    /// Clock of the last record that was read.
    pub clock: u64,
}

impl<'r> HeapRecords<'r> {
    /// Returns the heap records of `thread` in these slots. `clock` is the clock of the record
    /// before them.
    pub fn new(slots: &'r [[AtomicU64; 2]], thread: ThreadIndex, clock: u64) -> HeapRecords<'r> {
        HeapRecords { slots, thread, clock }
    }

    /// Returns the number of slots that are not read yet.
    pub fn left(&self) -> usize {
        self.slots.len()
    }

    /// Returns the next heap record. `None` if the next slot is empty or is the beginning of
    /// another kind of record.
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

    /// If the next record frees the block that `op` allocates, moves past that record and returns
    /// its clock.
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

    /// Returns the addresses of the first [`AHEAD`] records, which [`Self::address_ahead`] never
    /// returns.
    pub fn first_addresses(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().take(AHEAD).map(|slot| record::address(slot[0].load(Relaxed)))
    }

    /// Returns the address in the record that is [`AHEAD`] records ahead. Also fetches the cache
    /// line of a record that is further ahead.
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
        // SAFETY: a prefetch neither reads nor writes memory that the program can observe, and
        // `_slot` is a reference, so its address is valid.
        unsafe { _mm_prefetch::<{ _MM_HINT_T0 }>((&raw const *_slot).cast()) };
    }
}
