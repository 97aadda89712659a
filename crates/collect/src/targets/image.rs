//! One process image: its threads' rings, and the sums of their records.
//!
//! Nothing that is read from the region is trusted: unknown kinds, wrong lengths and foreign chunk
//! references are counted as refused and skipped.

mod followed_thread;
mod note;
mod records;
mod ring;
mod totals;

pub use followed_thread::FollowedThread;
pub use note::{Note, PythonKeys};
pub use totals::SlotTotals;

use crate::shared::Region;
use crate::shared::clock::Clock;
use crate::targets::heap::{Heap, HeapOp};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use tprof_trace::HeapBlock;
use tprof_trace::model::{ProcessIndex, ThreadIndex};
use tprof_wire::record::{ExtKind, SLOT_BYTES};
use tprof_wire::region::*;

/// A chunk that is still being written is read at most this often, so that the
/// collector and the writer do not fight over a cache line.
const PARTIAL_NS: u64 = 4_000_000;

/// Events between fetching a block's entry and using it.
const AHEAD: usize = 16;
/// Events that may wait for a thread that makes no progress.
const MAX_PENDING: usize = 1 << 20;
/// Time without any progress after which they are taken in the order that is known.
const STUCK_NS: u64 = 1_000_000_000;
/// Bytes taken from one ring before the next one's turn: two large chunks.
const MAX_TAKEN_BYTES: usize = 2 * LARGE_BYTES - SLOT_BYTES * 64;

/// How far a ring is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Up to the chunk that is still being written.
    Live,
    /// Up to its last record.
    Partial,
    /// Everything: its process or thread is gone, and nothing is waited for.
    Last,
}

/// One reading of a ring: its limit, and the destination of its records.
struct RingRead<'a> {
    clock: &'a Clock,
    now_ns: u64,
    pass: Pass,
    /// No other thread has records: these are in order of time.
    alone: bool,
    notes: &'a mut dyn Notes,
}

/// The receiver of notes.
pub trait Notes {
    /// Takes one, by `thread` at `clock`.
    fn note(&mut self, thread: &mut FollowedThread, clock: u64, note: Note);
    /// Takes a record of the CUPTI agent; false if it makes no sense.
    fn agent(
        &mut self,
        thread: &FollowedThread,
        clock: u64,
        kind: ExtKind,
        argument: u32,
        payload: &[u64],
    ) -> bool;
    /// Writes a full block and empties it.
    fn block_full(&mut self, block: &mut HeapBlock);
}

/// An image under observation.
pub struct Image {
    /// The shared memory.
    pub region: Arc<Region>,
    /// Row in the trace file.
    pub index: ProcessIndex,
    /// The live threads.
    pub threads: Vec<FollowedThread>,
    known: Box<[u64; SLOT_WORDS]>,
    threads_changed: u32,
    /// Heap state and its block.
    pub heap: Heap,
    pending: Vec<HeapOp>,
    /// Number of records taken.
    pub recorded: u64,
    /// Other records taken.
    pub(in crate::targets) taken: u64,
    /// Records refused or skipped.
    pub refused: u64,
    /// Counters of threads that ended.
    pub past: SlotTotals,
    payload: Vec<u64>,
    /// Time when events were last brought into order.
    settled_at: u64,
}

/// A new thread: its slot in the region, and its id.
pub struct NewThread {
    /// Index of the slot.
    pub slot: usize,
    /// Id of the thread.
    pub tid: u32,
    /// Clock at its first reading.
    pub clock: u64,
}

impl Image {
    /// Follows a fresh region.
    pub fn new(region: Arc<Region>, index: ProcessIndex) -> Image {
        Image {
            region,
            index,
            threads: Vec::new(),
            known: Box::new([u64::MAX; SLOT_WORDS]),
            threads_changed: 0,
            heap: Heap::new(index),
            pending: Vec::new(),
            recorded: 0,
            taken: 0,
            refused: 0,
            past: SlotTotals::default(),
            payload: Vec::new(),
            settled_at: 0,
        }
    }

    /// Threads that took a slot since the last call.
    pub fn new_threads(&mut self) -> Vec<NewThread> {
        let changed = self.region.header().threads_changed.load(Acquire);
        if changed == self.threads_changed {
            return Vec::new();
        }
        self.threads_changed = changed;
        let mut found = Vec::new();
        for word in 0..SLOT_WORDS {
            let mut taken = self.known[word] & !self.region.free_slots(word);
            while taken != 0 {
                let bit = taken.trailing_zeros() as usize;
                taken &= taken - 1;
                let slot = word * 64 + bit;
                let place = self.region.slot(slot);
                if place.state.load(Acquire) == slot_state::FREE {
                    // The slot is taken, but not filled in yet: read it again next time.
                    self.threads_changed = changed.wrapping_sub(1);
                    continue;
                }
                self.known[word] &= !(1 << bit);
                found.push(NewThread {
                    slot,
                    tid: place.tid.load(Relaxed),
                    clock: place.start_clock.load(Relaxed),
                });
            }
        }
        found
    }

    /// Begins to follow a thread.
    pub fn follow(&mut self, new: &NewThread, index: ThreadIndex) {
        let chunk = ChunkRef(self.region.slot(new.slot).first_chunk.load(Relaxed));
        let mut thread = FollowedThread {
            slot: new.slot,
            index,
            tid: new.tid,
            chunk,
            base: 0,
            bytes: 0,
            at: 0,
            clock: new.clock,
            hole_since: 0,
            partial_at: 0,
            ended: None,
            spawning: None,
            taken: 0,
            whole: true,
            allocated: (0, 0),
            counts: false,
        };
        thread.enter(chunk);
        self.threads.push(thread);
    }

    /// Stops following the thread at `at` in [`Image::threads`], which is gone
    /// for good, and recycles its slot and chunk.
    pub fn retire(&mut self, at: usize) -> FollowedThread {
        let thread = self.threads.swap_remove(at);
        let slot = self.region.slot(thread.slot);
        // The part that it had not added up yet: the sum that gives the peak is that of all
        // threads.
        let left = slot.live_delta.swap(0, AcqRel);
        self.region.header().live_bytes.fetch_add(left, AcqRel);
        self.past.add(slot);
        self.region.free_chunk(thread.chunk, thread.bytes);
        for counter in [
            &slot.allocations,
            &slot.frees,
            &slot.allocated_bytes,
            &slot.wait_ticks,
            &slot.waits,
            &slot.lost,
            &slot.stack_ticks,
            &slot.stacks_taken,
            &slot.operator_ticks,
        ] {
            counter.store(0, Relaxed);
        }
        slot.filled_chunks.store(0, Relaxed);
        slot.drained_chunks.store(0, Relaxed);
        slot.generation.fetch_add(1, Relaxed);
        slot.state.store(slot_state::FREE, Release);
        self.known[thread.slot / 64] |= 1 << (thread.slot % 64);
        self.region.free_slot(thread.slot);
        thread
    }

    /// Counters of all threads, past and present.
    pub fn slot_totals(&self) -> SlotTotals {
        let mut totals = self.past;
        for thread in &self.threads {
            totals.add(self.region.slot(thread.slot));
        }
        totals
    }

    /// Reads the records in the rings, and returns how many.
    pub fn drain(&mut self, clock: &Clock, now_ns: u64, pass: Pass, notes: &mut dyn Notes) -> u64 {
        let last = pass == Pass::Last;
        let mut horizon = clock.now();
        let alone = self.threads.len() == 1 && self.pending.is_empty();
        let before = self.recorded + self.taken;
        let mut threads = std::mem::take(&mut self.threads);
        // When much waits for one slow ring, the others are not read: they wait in turn, and the
        // order is kept.
        let crowded = self.pending.len() > MAX_PENDING / 2;
        let slowest = threads.iter().filter(|t| !t.whole).map(|t| t.clock).min();
        for thread in &mut threads {
            if crowded && !last && slowest.is_some_and(|slowest| thread.clock > slowest) {
                horizon = horizon.min(thread.clock);
                continue;
            }
            let partial = !alone || now_ns.wrapping_sub(thread.partial_at) >= PARTIAL_NS;
            let pass = if pass == Pass::Live && partial { Pass::Partial } else { pass };
            thread.whole =
                self.drain_thread(thread, &mut RingRead { clock, now_ns, pass, alone, notes });
            if !thread.whole && !alone {
                horizon = horizon.min(thread.clock);
            }
        }
        let whole = last && threads.iter().all(|t| t.bytes == 0 || t.taken < MAX_TAKEN_BYTES);
        self.threads = threads;
        if !self.pending.is_empty() {
            let stuck = self.pending.len() > MAX_PENDING && now_ns - self.settled_at > STUCK_NS;
            // Forced, the order is only nearly right: that is counted, as a refusal.
            self.refused += u64::from(stuck && !whole);
            let settled = self.merge(clock, if whole || stuck { u64::MAX } else { horizon }, notes);
            if settled > 0 {
                self.settled_at = now_ns;
            }
        }
        self.recorded + self.taken - before
    }

    /// Reads the last records of a thread that is gone, while others go on.
    pub fn drain_ended_thread(
        &mut self,
        at: usize,
        clock: &Clock,
        now_ns: u64,
        notes: &mut dyn Notes,
    ) {
        let mut thread = self.threads.swap_remove(at);
        for _ in 0..100_000 {
            let before = (thread.chunk, thread.at);
            let (pass, alone) = (Pass::Last, false);
            self.drain_thread(&mut thread, &mut RingRead { clock, now_ns, pass, alone, notes });
            if (thread.chunk, thread.at) == before {
                break;
            }
        }
        self.threads.push(thread);
        let last = self.threads.len() - 1;
        self.threads.swap(at, last);
    }

    /// Brings several threads' events into one order, as far as it is settled.
    fn merge(&mut self, clock: &Clock, horizon: u64, notes: &mut dyn Notes) -> usize {
        // Runs, one per thread and pass: a stable merge sort is linear in them.
        self.pending.sort_by_key(|op| op.clock);
        let settled = self.pending.partition_point(|op| op.clock <= horizon);
        let mut at = 0;
        while let Some(op) = self.pending[..settled].get(at) {
            if let Some(ahead) = self.pending.get(at + AHEAD) {
                self.heap.live.prefetch(ahead.address);
            }
            let end = self.pending[..settled].get(at + 1).filter(|next| next.ends(op));
            at += 1 + usize::from(end.is_some());
            if self.heap.apply_in_turn(*op, end.map(|end| end.clock), clock) {
                notes.block_full(&mut self.heap.block);
            }
        }
        self.pending.drain(..settled);
        settled
    }

    /// Whether threads have to be merged.
    pub fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }
}
