//! The heap of one image, event by event, in time order: who lives where, what
//! is live, when it was most; and the block that goes to the trace.

use crate::shared::clock::Clock;
use crate::targets::live::{Block, LiveMap};
use std::collections::VecDeque;
use tprof_trace::HeapBlock;
use tprof_trace::model::{ProcessIndex, ThreadIndex};
use tprof_wire::record::Kind;

/// One heap event.
#[derive(Clone, Copy, Debug)]
pub struct HeapOp {
    /// Clock of the target.
    pub clock: u64,
    /// Block.
    pub address: u64,
    /// Bytes asked for.
    pub size: u64,
    /// Stack id.
    pub stack: u32,
    /// By whom, and what: `thread << 3 | kind`.
    pub tag: u32,
}

impl HeapOp {
    /// Nothing, to fill an array with.
    pub const NONE: HeapOp = HeapOp { clock: 0, address: 0, size: 0, stack: 0, tag: 0 };

    /// Thread and kind in one word.
    #[inline(always)]
    pub fn tag(thread: ThreadIndex, kind: Kind) -> u32 {
        thread << 3 | kind as u32
    }

    /// Whether it frees what the event before it allocated, by the same thread.
    #[inline(always)]
    pub fn ends(&self, before: &HeapOp) -> bool {
        self.address == before.address
            && before.tag & 7 == ALLOC
            && self.tag == before.tag - ALLOC + FREE
    }
}

const ALLOC: u32 = Kind::Alloc as u32;
const FREE: u32 = Kind::Free as u32;
const REALLOC_ALLOC: u32 = Kind::ReallocAlloc as u32;
const REALLOC_FREE: u32 = Kind::ReallocFree as u32;

/// Frees of unknown blocks that are remembered, in case the allocation, by a
/// thread that was preempted between clock and record, comes after.
const ORPHANS: usize = 256;

/// See the module.
pub struct Heap {
    /// Live blocks.
    pub live: LiveMap,
    /// Events on their way to the file.
    pub block: HeapBlock,
    /// Allocations so far.
    pub allocations: u64,
    /// Frees so far.
    pub frees: u64,
    /// Bytes asked for so far.
    pub allocated_bytes: u64,
    /// Bytes live now.
    pub live_bytes: u64,
    /// Most bytes live at once.
    pub peak_bytes: u64,
    /// When that was, ns.
    pub peak_ns: u64,
    /// Blocks handed out at an address that was live: a free was missed.
    pub missed_frees: u64,
    orphans: VecDeque<(u64, u64)>,
    /// Blocks that a `realloc` has taken and not given back: thread, address, block.
    aside: Vec<(ThreadIndex, u64, Option<Block>)>,
    last: u64,
}

impl Heap {
    /// An empty heap.
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
            aside: Vec::new(),
            last: 0,
        }
    }

    /// Applies one event; true if the block has to be written now.
    #[inline(always)]
    #[must_use]
    pub fn apply(&mut self, op: &HeapOp, clock: &Clock) -> bool {
        let time = clock.ns(op.clock);
        match op.tag & 7 {
            ALLOC => self.allocated(op, time),
            FREE => self.freed(op, time, false),
            _ => self.reallocated(op, time),
        }
        self.block.is_full()
    }

    /// Applies events in order; true if the block has to be written now, with
    /// the number of events that were applied by then. Meanwhile fetches entries
    /// of the table of live blocks for the addresses in `next`, and takes them off it.
    ///
    /// A block that is freed by the very next event never enters the table of
    /// live blocks: such temporaries are most of what many programs allocate.
    #[inline(always)]
    pub fn apply_all(&mut self, ops: &[HeapOp], next: &mut &[u64], clock: &Clock) -> (usize, bool) {
        let mut at = 0;
        while let Some(op) = ops.get(at) {
            at += 1;
            // One at a time: a processor that waits for as many cache lines as it can does
            // nothing else.
            if let Some((address, rest)) = next.split_first() {
                self.live.prefetch(*address);
                *next = rest;
            }
            let full = match ops.get(at) {
                Some(end) if end.ends(op) && op.clock >= self.last => {
                    at += 1;
                    self.temporary(op, end, clock)
                }
                _ => self.apply(op, clock),
            };
            if full {
                return (at, true);
            }
        }
        (at, false)
    }

    #[inline(always)]
    fn temporary(&mut self, op: &HeapOp, end: &HeapOp, clock: &Clock) -> bool {
        let time = clock.ns(op.clock);
        self.block.temporary([time, clock.ns(end.clock)], op.tag >> 3, op.size, op.stack);
        self.allocations += 1;
        self.frees += 1;
        self.allocated_bytes = self.allocated_bytes.wrapping_add(op.size);
        self.last = end.clock;
        let with_it = self.live_bytes.wrapping_add(op.size);
        if with_it > self.peak_bytes {
            self.peak_bytes = with_it;
            self.peak_ns = time;
        }
        self.block.is_full()
    }

    #[inline(always)]
    fn allocated(&mut self, op: &HeapOp, time: u64) {
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
        if self.live_bytes > self.peak_bytes {
            self.peak_bytes = self.live_bytes;
            self.peak_ns = time;
        }
    }

    #[inline(always)]
    fn freed(&mut self, op: &HeapOp, time: u64, realloc: bool) {
        self.frees += 1;
        self.last = self.last.max(op.clock);
        match self.live.remove(op.address) {
            Some(block) => {
                self.live_bytes = self.live_bytes.wrapping_sub(block.size);
                self.block.free(
                    time,
                    op.tag >> 3,
                    self.block.next_ordinal() - block.ordinal,
                    realloc,
                );
            }
            None => self.orphan(op, time, realloc),
        }
    }

    /// A part of a `realloc`: the old block is set aside when it begins, since
    /// its address may be another's before the end is read, and ends with it.
    #[inline(never)]
    fn reallocated(&mut self, op: &HeapOp, time: u64) {
        let thread = op.tag >> 3;
        if op.tag & 7 == REALLOC_FREE {
            let old = self.live.remove(op.address);
            self.last = self.last.max(op.clock);
            self.aside.push((thread, op.address, old));
            return;
        }
        // The newest of this thread: a signal handler's lies above the interrupted one's.
        let begun = self.aside.iter().rposition(|(of, ..)| *of == thread);
        let begun = begun.map(|at| self.aside.remove(at));
        if op.tag & 7 != REALLOC_ALLOC {
            if let Some((_, address, Some(block))) = begun {
                self.live.insert(address, block);
            }
            return;
        }
        if let Some((_, address, old)) = begun {
            self.frees += 1;
            match old {
                Some(block) => {
                    self.live_bytes = self.live_bytes.wrapping_sub(block.size);
                    let distance = self.block.next_ordinal() - block.ordinal;
                    self.block.free(time, thread, distance, true);
                }
                None => self.orphan(&HeapOp { address, ..*op }, time, true),
            }
        }
        if op.address != 0 {
            self.allocated(op, time);
        }
    }

    #[cold]
    fn orphan(&mut self, op: &HeapOp, time: u64, realloc: bool) {
        self.block.free(time, op.tag >> 3, 0, realloc);
        if self.orphans.len() == ORPHANS {
            self.orphans.pop_front();
        }
        self.orphans.push_back((op.address, op.clock));
    }

    /// A late allocation with its free applied already: it is not live.
    #[cold]
    fn adopt(&mut self, op: &HeapOp) -> bool {
        match self.orphans.iter().position(|o| o.0 == op.address && o.1 >= op.clock) {
            Some(at) => {
                self.orphans.remove(at);
                true
            }
            None => false,
        }
    }
}
