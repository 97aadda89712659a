//! Takes the records from one thread's ring, and frees the chunks that were read.

use super::{FollowedThread, Image, MAX_TAKEN_BYTES, Note, RingRead};
use crate::targets::file_calls::FileNote;
use crate::targets::heap::HeapOp;
use crate::targets::image::heap_records::HeapRecords;
use std::sync::atomic::Ordering::*;
use tprof_os::sys;
use tprof_ring::{ExtRecord, Found};
use tprof_wire::record::{AGENT_KINDS, ExtKind, Kind, SLOT_BYTES};
use tprof_wire::region::{CHUNKS_PER_THREAD, ChunkRef};

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
        thread.taken = 0;
        let whole = loop {
            match thread.ring.find(&*self.region, &reading.limits) {
                Found::Heap => self.take_heap(thread, reading),
                Found::Ext(record) => self.take_ext(thread, record, reading),
                Found::ChunkEnd { chunk, used } => {
                    thread.taken += used;
                    self.free_chunk(thread.slot, chunk, used);
                    if thread.taken >= MAX_TAKEN_BYTES {
                        // A ring that ends with a wrong chunk has nothing more to read.
                        break thread.ring.chunk().1 == 0;
                    }
                }
                Found::Unfinished => break false,
                Found::End => break true,
            }
        };
        self.refused += std::mem::take(&mut thread.ring.refused);
        whole
    }

    /// Gives a chunk that was read back to its process, and wakes the thread in `slot` if it waits
    /// for room.
    fn free_chunk(&mut self, slot: usize, chunk: ChunkRef, used: usize) {
        self.region.free_chunk(chunk, used.max(SLOT_BYTES));
        let slot = self.region.slot(slot);
        let drained = slot.drained_chunks.fetch_add(1, Release).wrapping_add(1);
        let full = slot.filled_chunks.load(Relaxed).wrapping_sub(drained);
        let has_room = full <= CHUNKS_PER_THREAD - WAKE_ROOM;
        if has_room && self.region.header().waiting.load(Relaxed) != 0 {
            sys::futex_wake(&slot.drained_chunks);
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
    fn take_heap(&mut self, thread: &mut FollowedThread, reading: &mut RingRead<'_>) {
        let (from, to) = thread.ring.heap_slots();
        let slots = self.region.slots(from, to);
        let mut records = HeapRecords::new(slots, thread.index, thread.ring.clock());
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
        thread.ring.advance(taken, records.clock);
        self.recorded += taken as u64;
    }

    #[cold]
    fn take_ext(
        &mut self,
        thread: &mut FollowedThread,
        record: ExtRecord,
        reading: &mut RingRead<'_>,
    ) {
        let ExtRecord { kind, argument, clock, .. } = record;
        let mut payload = std::mem::take(&mut self.payload);
        self.region.payload(&record, &mut payload);
        if kind == ExtKind::Wide {
            let kind = Kind::of(u64::from(argument)).filter(|kind| kind.is_heap_event());
            if let (Some(kind), [address, size, stack, ..]) = (kind, payload.as_slice()) {
                self.recorded += 1;
                let op = HeapOp {
                    clock,
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
        } else if AGENT_KINDS.contains(&(kind as u16)) {
            self.taken += 1;
            match kind {
                ExtKind::Call => self.of_calls += 1,
                ExtKind::Kernel | ExtKind::Copy | ExtKind::Wait | ExtKind::Memory => {
                    self.of_devices += 1
                }
                _ => {}
            }
            let sound = reading.notes.agent(thread, clock, kind, argument, &payload);
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
                            | Note::File(FileNote::Call(..))
                    ));
                    self.taken += 1;
                    thread.counts |= matches!(note, Note::Span(..));
                    reading.notes.note(thread, clock, note);
                }
                None => self.refused += 1,
            }
        }
        self.payload = payload;
    }
}
