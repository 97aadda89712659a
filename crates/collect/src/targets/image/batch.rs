//! Heap records of one ring, decoded some at a time before they are applied.

use crate::targets::heap::HeapOp;
use std::sync::atomic::{AtomicU64, Ordering::*};
use tprof_trace::model::ThreadIndex;
use tprof_wire::record::{self, Kind};

/// Events in a batch: by the time that one is applied, what it needs of the table of live blocks
/// has been on its way for as long as the batch before took.
const MOST: usize = 32;

/// See the module.
pub(super) struct HeapBatch {
    ops: [HeapOp; MOST],
    /// Events in it.
    pub len: usize,
    /// Blocks that are looked up: all but those that are freed by the very next event.
    wanted: [u64; MOST],
    wanted_len: usize,
}

impl HeapBatch {
    /// One without events.
    pub const EMPTY: HeapBatch =
        HeapBatch { ops: [HeapOp::NONE; MOST], len: 0, wanted: [0; MOST], wanted_len: 0 };

    /// Its events.
    pub fn ops(&self) -> &[HeapOp] {
        &self.ops[..self.len]
    }

    /// Addresses of the blocks that its events look up.
    pub fn wanted(&self) -> &[u64] {
        &self.wanted[..self.wanted_len]
    }

    /// Decodes heap records at the beginning of `slots` in place of its events; whether there may
    /// be more. `clock` is that of the record before, and then of the last.
    #[inline(always)]
    pub fn decode(
        &mut self,
        slots: &[[AtomicU64; 2]],
        thread: ThreadIndex,
        clock: &mut u64,
    ) -> bool {
        let (mut len, mut wanted, mut now) = (0, 0, *clock);
        let mut last = HeapOp::NONE;
        for (slot, op) in slots.iter().zip(&mut self.ops) {
            let word0 = slot[0].load(Acquire);
            let kind = (word0 & 15) as u32;
            if kind.wrapping_sub(1) > 4 {
                break;
            }
            let word1 = slot[1].load(Relaxed);
            now = record::clock(word1, now);
            let next = HeapOp {
                clock: now,
                address: record::address(word0),
                size: record::size(word0, word1),
                stack: record::stack(word1),
                tag: thread << 3 | kind,
            };
            self.wanted[wanted % MOST] = next.address;
            wanted = if next.ends(&last) { wanted - 1 } else { wanted + 1 };
            (*op, last) = (next, next);
            len += 1;
        }
        let more = len == MOST;
        // The next batch begins with an allocation that may be freed at once.
        if more && last.tag & 7 == Kind::Alloc as u32 {
            (len, wanted, now) = (len - 1, wanted - 1, self.ops[len - 2].clock);
        }
        (self.len, self.wanted_len, *clock) = (len, wanted, now);
        more
    }
}
