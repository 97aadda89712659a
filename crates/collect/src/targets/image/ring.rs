//! Reads the records in one thread's ring.
//!
//! A program may have written anything into its region. Unknown kinds, wrong lengths and invalid
//! references to chunks are therefore counted as refused and skipped.

use super::{FollowedThread, Image, MAX_TAKEN_BYTES, Note, Pass, RingRead};
use crate::shared::SlotRead;
use crate::targets::heap::HeapOp;
use crate::targets::image::records::HeapRecords;
use std::sync::atomic::Ordering::*;
use tprof_os::sys;
use tprof_wire::record::{self, ExtKind, Kind, SLOT_BYTES};
use tprof_wire::region::{CHUNKS_PER_THREAD, ChunkRef};

/// Time after which a hole is skipped, ns. A hole is a reserved slot that stays empty while later
/// slots are written, because its writer died or left the hook by `longjmp`. The time is longer
/// than the scheduler lets a thread wait on a busy machine.
const HOLE_NS: u64 = 200_000_000;
/// Number of free chunks at which a thread is woken that waits on a full ring. If one free chunk
/// woke it, a thread that writes faster than the collector reads would need two context switches
/// per chunk. A thread that isn't woken stops waiting at its own time limit.
const WAKE_ROOM: u32 = 4;
/// The size of the address space, bytes. No block can be larger.
const ADDRESS_SPACE: u64 = 1 << 47;

impl Image {
    /// Reads one thread's ring. Returns false if the ring has more to read later.
    pub(super) fn drain_thread(
        &mut self,
        thread: &mut FollowedThread,
        reading: &mut RingRead<'_>,
    ) -> bool {
        let (now_ns, last) = (reading.now_ns, reading.pass == Pass::Last);
        thread.taken = 0;
        loop {
            if thread.bytes == 0 {
                return true; // its chunk reference was invalid
            }
            if thread.taken >= MAX_TAKEN_BYTES {
                return false;
            }
            let mut next = self.region.chunk_next(thread.base);
            if next == 0 && reading.pass == Pass::Live {
                return true;
            }
            if next == 0 {
                thread.partial_at = now_ns;
            }
            let mut end = self.end_of(next, thread.bytes);
            while thread.at < end {
                match self.region.read(thread.base + thread.at) {
                    SlotRead::Record(word0, _) if word0 & 15 == Kind::Pending as u64 => {
                        let bytes = (word0 >> 16 & 0xffff).max(1) as usize * SLOT_BYTES;
                        // The scheduler or a signal handler interrupted the writer. A handler may
                        // never return to it, but the handler's own records then follow this one.
                        if !last && !self.is_abandoned(thread, bytes, now_ns) {
                            return false;
                        }
                        thread.at += bytes;
                        self.refused += 1;
                    }
                    SlotRead::Record(word0, word1) if word1 > reading.until && is_agents(word0) => {
                        return false;
                    }
                    SlotRead::Record(word0, word1) => {
                        thread.hole_since = 0;
                        self.take(thread, word0, word1, end, reading);
                    }
                    SlotRead::Empty => {
                        if next == 0 {
                            next = self.region.chunk_next(thread.base);
                            if next != 0 {
                                // The writer has moved on to the next chunk meanwhile.
                                end = self.end_of(next, thread.bytes);
                                continue;
                            }
                            if !self.later_slot_written(thread) {
                                return true;
                            }
                        }
                        if !self.hole(thread, now_ns, last) {
                            return false;
                        }
                    }
                }
            }
            if next == 0 {
                return true;
            }
            self.leave_chunk(thread, ChunkRef(next as u32));
        }
    }

    /// Returns the offset in a chunk where its records end. The result is a whole number of slots
    /// within the chunk, even if the chunk's header is invalid.
    fn end_of(&mut self, next: u64, bytes: usize) -> usize {
        let stated = if next == 0 { bytes } else { (next >> 32) as usize };
        let end = stated.min(bytes) & !(SLOT_BYTES - 1);
        self.refused += u64::from(end != stated);
        end
    }

    /// Whether one of the next few slots has been written, which makes the empty slot a hole.
    fn later_slot_written(&self, thread: &FollowedThread) -> bool {
        (1..8).any(|i| {
            let at = thread.at + i * SLOT_BYTES;
            at < thread.bytes && matches!(self.region.read(thread.base + at), SlotRead::Record(..))
        })
    }

    /// Whether a record of `bytes` that is marked as unfinished will never be finished. That is
    /// assumed once a later record has followed it for [`HOLE_NS`].
    fn is_abandoned(&self, thread: &mut FollowedThread, bytes: usize, now_ns: u64) -> bool {
        let behind = thread.at + bytes;
        let written = behind < thread.bytes
            && matches!(self.region.read(thread.base + behind), SlotRead::Record(..));
        if !written || thread.hole_since == 0 {
            thread.hole_since = if written { now_ns.max(1) } else { 0 };
            return false;
        }
        let abandoned = now_ns - thread.hole_since >= HOLE_NS;
        if abandoned {
            thread.hole_since = 0;
        }
        abandoned
    }

    /// Handles an empty slot that written slots follow: waits for [`HOLE_NS`] and then skips the
    /// slot. Returns whether the slot was skipped.
    fn hole(&mut self, thread: &mut FollowedThread, now_ns: u64, last: bool) -> bool {
        if !last {
            if thread.hole_since == 0 {
                thread.hole_since = now_ns.max(1);
                return false;
            }
            if now_ns - thread.hole_since < HOLE_NS {
                return false;
            }
        }
        thread.hole_since = 0;
        thread.at += SLOT_BYTES;
        self.refused += 1;
        true
    }

    fn leave_chunk(&mut self, thread: &mut FollowedThread, next: ChunkRef) {
        let (done, used) = (thread.chunk, thread.at);
        thread.taken += used;
        thread.enter(next);
        if thread.bytes == 0 {
            self.refused += 1;
        }
        self.region.free_chunk(done, used.max(SLOT_BYTES));
        let slot = self.region.slot(thread.slot);
        let drained = slot.drained_chunks.fetch_add(1, Release).wrapping_add(1);
        let full = slot.filled_chunks.load(Relaxed).wrapping_sub(drained);
        let has_room = full <= CHUNKS_PER_THREAD - WAKE_ROOM;
        if has_room && self.region.header().waiting.load(Relaxed) != 0 {
            sys::futex_wake(&slot.drained_chunks);
        }
    }

    /// Reads the record at the thread's position and moves past the record.
    #[inline(always)]
    fn take(
        &mut self,
        thread: &mut FollowedThread,
        word0: u64,
        word1: u64,
        end: usize,
        reading: &mut RingRead<'_>,
    ) {
        match Kind::of(word0) {
            Some(
                Kind::Alloc
                | Kind::Free
                | Kind::ReallocFree
                | Kind::ReallocAlloc
                | Kind::ReallocFailed,
            ) => {
                self.take_heap(thread, end, reading);
            }
            Some(Kind::Time) => {
                thread.at += SLOT_BYTES;
                thread.clock = word1;
            }
            Some(Kind::Pad) => {
                let slots = (word0 >> 16 & 0xffff).max(1) as usize;
                thread.at = (thread.at + slots * SLOT_BYTES).min(end);
            }
            Some(Kind::Ext) => self.take_ext(thread, word0, word1, end, reading),
            Some(Kind::Pending) | None => {
                thread.at += SLOT_BYTES;
                self.refused += 1;
            }
        }
    }

    #[inline(always)]
    fn heap_op(&mut self, op: HeapOp, reading: &mut RingRead<'_>) {
        if !reading.alone {
            self.pending.push(op);
            return;
        }
        if self.heap.apply(op, reading.clock) {
            reading.notes.block_full(&mut self.heap.block);
        }
    }

    /// Reads heap records until a record of another kind follows. Most records are heap records, so
    /// they are read in a loop of their own.
    #[inline(never)]
    fn take_heap(&mut self, thread: &mut FollowedThread, end: usize, reading: &mut RingRead<'_>) {
        let slots = self.region.slots(thread.base + thread.at, thread.base + end);
        let mut records = HeapRecords::new(slots, thread.index, thread.clock);
        if reading.alone {
            let (heap, clock) = (&mut self.heap, reading.clock);
            let before = (heap.allocations, heap.allocated_bytes);
            records.first_addresses().for_each(|address| heap.live.prefetch(address));
            while let Some(op) = records.next() {
                let end = records.end_of(&op);
                if let Some(address) = records.address_ahead() {
                    heap.live.prefetch(address);
                }
                if heap.apply_with(op, end, clock) {
                    reading.notes.block_full(&mut heap.block);
                }
            }
            if thread.counts {
                let bytes = heap.allocated_bytes.wrapping_sub(before.1);
                thread.add(heap.allocations.wrapping_sub(before.0), bytes);
            }
        } else {
            let pending = self.pending.len();
            self.pending.reserve(slots.len());
            while let Some(op) = records.next() {
                self.pending.push(op);
            }
            thread.count(&self.pending[pending..]);
        }
        let taken = slots.len() - records.left();
        thread.clock = records.clock;
        thread.at += taken * SLOT_BYTES;
        self.recorded += taken as u64;
    }

    #[cold]
    fn take_ext(
        &mut self,
        thread: &mut FollowedThread,
        word0: u64,
        word1: u64,
        end: usize,
        reading: &mut RingRead<'_>,
    ) {
        let slots = (word0 >> 16 & 0xffff) as usize;
        let place = thread.base + thread.at;
        if slots < 2 || thread.at + slots * SLOT_BYTES > end {
            thread.at += SLOT_BYTES;
            self.refused += 1;
            return;
        }
        thread.at += slots * SLOT_BYTES;
        let Some(kind) = ExtKind::of(word0) else {
            self.refused += 1;
            return;
        };
        let mut payload = std::mem::take(&mut self.payload);
        self.region.payload(place, slots, &mut payload);
        thread.clock = word1;
        let argument = (word0 >> 32) as u32;
        if kind == ExtKind::Wide {
            let kind = Kind::of(u64::from(argument)).filter(|kind| kind.is_heap_event());
            if let (Some(kind), [address, size, stack, ..]) = (kind, payload.as_slice()) {
                self.recorded += 1;
                let op = HeapOp {
                    clock: word1,
                    address: *address,
                    size: (*size).min(ADDRESS_SPACE),
                    stack: *stack as u32,
                    tag: HeapOp::tag(thread.index, kind),
                };
                thread.count([&op]);
                self.heap_op(op, reading);
            } else {
                self.refused += 1;
            }
        } else if is_agents(word0) {
            self.taken += 1;
            match kind {
                ExtKind::Call => self.of_calls += 1,
                ExtKind::Kernel | ExtKind::Copy | ExtKind::Wait | ExtKind::Memory => {
                    self.of_devices += 1
                }
                _ => {}
            }
            let sound = reading.notes.agent(thread, word1, kind, argument, &payload);
            self.refused += u64::from(!sound);
        } else {
            match Note::decode(kind, argument, &payload) {
                Some(note) => {
                    // Notes about threads, processes and stacks aren't counted as recorded events.
                    self.recorded += u64::from(matches!(
                        note,
                        Note::Map(..)
                            | Note::Unmap(..)
                            | Note::Remap(..)
                            | Note::Attach(..)
                            | Note::Detach(..)
                            | Note::Call(..)
                            | Note::Span(..)
                    ));
                    self.taken += 1;
                    thread.counts |= matches!(note, Note::Span(..));
                    reading.notes.note(thread, word1, note);
                }
                None => self.refused += 1,
            }
        }
        self.payload = payload;
    }
}

/// Whether a record with this first word is one that only the CUPTI agent writes.
fn is_agents(word0: u64) -> bool {
    Kind::of(word0) == Some(Kind::Ext)
        && ExtKind::of(word0).is_some_and(|kind| record::AGENT_KINDS.contains(&(kind as u16)))
}
