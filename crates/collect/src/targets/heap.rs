//! Follows the heap of one image. Applies the heap events in order of time, keeps the live blocks,
//! the live bytes and their peak, and collects the events into blocks for the trace.

use crate::shared::clock::Clock;
use crate::targets::live::{Block, LiveMap};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use tprof_trace::HeapBlock;
use tprof_trace::model::{ProcessIndex, ThreadIndex};
use tprof_wire::record::Kind;

/// One heap event.
#[derive(Clone, Copy, Debug)]
pub struct HeapOp {
    /// The target's clock when the event happened.
    pub clock: u64,
    /// Address of the block.
    pub address: u64,
    /// Bytes that the caller requested.
    pub size: u64,
    /// Id of the stack.
    pub stack: u32,
    /// Thread and kind of the event: `thread << 3 | kind`.
    pub tag: u32,
}

impl HeapOp {
    /// Packs thread and kind into one word.
    #[inline(always)]
    pub fn tag(thread: ThreadIndex, kind: Kind) -> u32 {
        thread << 3 | kind as u32
    }

    /// Whether this event frees the block that the event `before` allocated, both on the same
    /// thread.
    #[inline(always)]
    pub fn ends(&self, before: &HeapOp) -> bool {
        self.address == before.address
            && before.tag & 7 == ALLOC
            && self.tag == before.tag - ALLOC + FREE
    }

    /// Whether this event allocates a block.
    pub fn allocates(&self) -> bool {
        match self.tag & 7 {
            ALLOC => true,
            kind => kind == REALLOC_ALLOC && self.address != 0,
        }
    }

    /// Returns the event that frees the block of this event, at `clock` and by the same thread.
    #[inline(always)]
    pub fn ended(self, clock: u64) -> HeapOp {
        HeapOp { clock, size: 0, stack: 0, tag: self.tag - ALLOC + FREE, ..self }
    }
}

const ALLOC: u32 = Kind::Alloc as u32;
const FREE: u32 = Kind::Free as u32;
const REALLOC_ALLOC: u32 = Kind::ReallocAlloc as u32;
const REALLOC_FREE: u32 = Kind::ReallocFree as u32;

/// Number of frees of unknown blocks that are remembered. The record of an allocation may come
/// after that of its free, if the allocating thread was preempted between reading the clock and
/// writing the record.
const ORPHANS: usize = 256;

/// The heap of one image.
pub struct Heap {
    /// The live blocks.
    pub live: LiveMap,
    /// Events that are not written to the trace yet.
    pub block: HeapBlock,
    /// Number of allocations so far.
    pub allocations: u64,
    /// Number of frees so far.
    pub frees: u64,
    /// Bytes that all allocations so far have requested.
    pub allocated_bytes: u64,
    /// Bytes that are live now.
    pub live_bytes: u64,
    /// The most bytes that were live at once.
    pub peak_bytes: u64,
    /// Time of the peak, ns.
    pub peak_ns: u64,
    /// Number of allocations at an address that was still live: the free before them was not
    /// recorded.
    pub missed_frees: u64,
    orphans: VecDeque<(u64, u64)>,
    /// The old blocks of each thread's `realloc` calls that have begun but not ended: address,
    /// block.
    aside: FxHashMap<ThreadIndex, Vec<(u64, Option<Block>)>>,
    last: u64,
}

impl Heap {
    /// Returns an empty heap.
    pub fn new(process: ProcessIndex) -> Heap {
        Heap {
            live: LiveMap::default(),
            block: HeapBlock::new(process),
            allocations: 0,
            frees: 0,
            allocated_bytes: 0,
            live_bytes: 0,
            peak_bytes: 0,
            peak_ns: 0,
            missed_frees: 0,
            orphans: VecDeque::new(),
            aside: FxHashMap::default(),
            last: 0,
        }
    }

    /// Applies one event. Returns true if the block of events is full, so that the caller must
    /// write it before the next event.
    #[inline(always)]
    #[must_use]
    pub fn apply(&mut self, op: HeapOp, clock: &Clock) -> bool {
        let time = clock.ns(op.clock);
        match op.tag & 7 {
            ALLOC => self.allocated(op, time),
            FREE => self.freed(op, time),
            _ => self.reallocated(op, time),
        }
        self.block.is_full()
    }

    /// Applies one event like [`Self::apply`], and a second one that frees the block which `op`
    /// allocates. `end` is the clock of that free; the caller has seen that it is the next event of
    /// all threads and by the same thread.
    ///
    /// Such a temporary block never enters the table of live blocks, which saves time: many
    /// programs allocate mostly temporary blocks.
    #[inline(always)]
    #[must_use]
    pub fn apply_with(&mut self, op: HeapOp, end: Option<u64>, clock: &Clock) -> bool {
        match end {
            None => self.apply(op, clock),
            Some(end) if op.clock < self.last => {
                // `|` instead of `||`, because both events must be applied even if the first fills
                // the block.
                self.apply(op, clock) | self.apply(op.ended(end), clock)
            }
            Some(end) => self.temporary(op, end, clock),
        }
    }

    /// Does the same as [`Self::apply_with`] for events in which several threads alternate.
    #[inline(always)]
    #[must_use]
    pub fn apply_in_turn(&mut self, op: HeapOp, end: Option<u64>, clock: &Clock) -> bool {
        if matches!(op.tag & 7, ALLOC | FREE) {
            self.block.next_by(op.tag >> 3);
        }
        self.apply_with(op, end, clock)
    }

    #[inline(always)]
    fn temporary(&mut self, op: HeapOp, end: u64, clock: &Clock) -> bool {
        let time = clock.ns(op.clock);
        self.block.temporary([time, clock.ns(end)], op.tag >> 3, op.size, op.stack);
        self.allocations += 1;
        self.frees += 1;
        self.allocated_bytes = self.allocated_bytes.wrapping_add(op.size);
        self.last = end;
        self.notice_peak(self.live_bytes.wrapping_add(op.size), time);
        self.block.is_full()
    }

    #[inline(always)]
    fn notice_peak(&mut self, bytes: u64, time: u64) {
        if bytes > self.peak_bytes {
            self.peak_bytes = bytes;
            self.peak_ns = time;
        }
    }

    #[inline(always)]
    fn allocated(&mut self, op: HeapOp, time: u64) {
        let block = Block { ordinal: self.block.next_ordinal(), size: op.size };
        self.block.alloc(time, op.tag >> 3, op.size, op.stack, op.tag & 7 == REALLOC_ALLOC);
        self.allocations += 1;
        self.allocated_bytes = self.allocated_bytes.wrapping_add(op.size);
        if op.clock < self.last && self.adopt(op) {
            return;
        }
        self.last = op.clock;
        if let Some(old) = self.live.insert(op.address, block) {
            self.live_bytes = self.live_bytes.wrapping_sub(old.size);
            self.missed_frees += 1;
        }
        self.live_bytes = self.live_bytes.wrapping_add(op.size);
        self.notice_peak(self.live_bytes, time);
    }

    #[inline(always)]
    fn freed(&mut self, op: HeapOp, time: u64) {
        self.frees += 1;
        self.last = self.last.max(op.clock);
        match self.live.remove(op.address) {
            Some(block) => {
                self.live_bytes = self.live_bytes.wrapping_sub(block.size);
                let distance = self.block.next_ordinal() - block.ordinal;
                self.block.free(time, op.tag >> 3, distance, false);
            }
            None => self.orphan(op, time, false),
        }
    }

    /// Applies one of the two records of a `realloc`. The first removes the old block from the
    /// table and sets it aside, because another thread may get its address before the second record
    /// is read. The second frees the old block, or puts it back if the call failed.
    #[inline(never)]
    fn reallocated(&mut self, op: HeapOp, time: u64) {
        let thread = op.tag >> 3;
        if op.tag & 7 == REALLOC_FREE {
            let old = self.live.remove(op.address);
            self.last = self.last.max(op.clock);
            self.aside.entry(thread).or_default().push((op.address, old));
            return;
        }
        // A signal handler's `realloc` ends before the one that it interrupted, so this record ends
        // the newest one of its thread.
        let begun = self.aside.get_mut(&thread).and_then(Vec::pop);
        if op.tag & 7 != REALLOC_ALLOC {
            if let Some((address, Some(block))) = begun {
                self.live.insert(address, block);
            }
            return;
        }
        if let Some((address, old)) = begun {
            self.frees += 1;
            match old {
                Some(block) => {
                    self.live_bytes = self.live_bytes.wrapping_sub(block.size);
                    let distance = self.block.next_ordinal() - block.ordinal;
                    self.block.free(time, thread, distance, true);
                }
                None => self.orphan(HeapOp { address, ..op }, time, true),
            }
        }
        if op.address != 0 {
            self.allocated(op, time);
        }
    }

    #[cold]
    #[inline(never)]
    fn orphan(&mut self, op: HeapOp, time: u64, realloc: bool) {
        self.block.free(time, op.tag >> 3, 0, realloc);
        if self.orphans.len() == ORPHANS {
            self.orphans.pop_front();
        }
        self.orphans.push_back((op.address, op.clock));
    }

    /// Handles an allocation that is applied late. Returns true if its free was already applied, so
    /// that the block must not become live.
    #[cold]
    #[inline(never)]
    fn adopt(&mut self, op: HeapOp) -> bool {
        match self.orphans.iter().position(|o| o.0 == op.address && o.1 >= op.clock) {
            Some(at) => {
                self.orphans.remove(at);
                true
            }
            None => false,
        }
    }
}
