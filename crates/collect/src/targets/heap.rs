//! The heap of one image, event by event, in the order of time: live blocks and bytes, their peak,
//! and the block of events that goes to the trace.

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
    /// Address of the block.
    pub address: u64,
    /// Bytes asked for.
    pub size: u64,
    /// Id of the stack.
    pub stack: u32,
    /// Thread and kind: `thread << 3 | kind`.
    pub tag: u32,
}

impl HeapOp {
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

    /// Whether it allocates a block.
    pub fn allocates(&self) -> bool {
        match self.tag & 7 {
            ALLOC => true,
            kind => kind == REALLOC_ALLOC && self.address != 0,
        }
    }

    /// Returns the free of the block that this allocates, at `clock` by the same thread.
    #[inline(always)]
    pub fn ended(self, clock: u64) -> HeapOp {
        HeapOp { clock, size: 0, stack: 0, tag: self.tag - ALLOC + FREE, ..self }
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
    /// The live blocks.
    pub live: LiveMap,
    /// Events on their way to the file.
    pub block: HeapBlock,
    /// Number of allocations so far.
    pub allocations: u64,
    /// Number of frees so far.
    pub frees: u64,
    /// Bytes that were asked for so far.
    pub allocated_bytes: u64,
    /// Bytes live now.
    pub live_bytes: u64,
    /// Most bytes live at once.
    pub peak_bytes: u64,
    /// Time of the peak, ns.
    pub peak_ns: u64,
    /// Blocks that were handed out at an address that was live: a free was missed.
    pub missed_frees: u64,
    orphans: VecDeque<(u64, u64)>,
    /// Blocks that a `realloc` has taken and not given back yet: thread, address, block.
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
    pub fn apply(&mut self, op: HeapOp, clock: &Clock) -> bool {
        let time = clock.ns(op.clock);
        match op.tag & 7 {
            ALLOC => self.allocated(op, time),
            FREE => self.freed(op, time),
            _ => self.reallocated(op, time),
        }
        self.block.is_full()
    }

    /// Like [`Self::apply`]; `end` is the time of the free of what the event allocates, where that
    /// is the very next event and by the same thread.
    ///
    /// Such a block never enters the table of live blocks: temporaries are most of what many
    /// programs allocate.
    #[inline(always)]
    #[must_use]
    pub fn apply_with(&mut self, op: HeapOp, end: Option<u64>, clock: &Clock) -> bool {
        match end {
            None => self.apply(op, clock),
            Some(end) if op.clock < self.last => {
                // Apply both, whether the first fills the block or not.
                self.apply(op, clock) | self.apply(op.ended(end), clock)
            }
            Some(end) => self.temporary(op, end, clock),
        }
    }

    /// Like [`Self::apply_with`], where the events of threads alternate.
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

    /// A part of a `realloc`: the old block is set aside when it begins, since
    /// its address may be another's before the end is read, and ends with it.
    #[inline(never)]
    fn reallocated(&mut self, op: HeapOp, time: u64) {
        let thread = op.tag >> 3;
        if op.tag & 7 == REALLOC_FREE {
            let old = self.live.remove(op.address);
            self.last = self.last.max(op.clock);
            self.aside.push((thread, op.address, old));
            return;
        }
        // The newest one of this thread: a signal handler's comes after the interrupted one's.
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

    /// A late allocation with its free applied already: it is not live.
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
