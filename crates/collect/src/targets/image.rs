//! Reads the rings of the threads of one program image, and keeps the sums of their records.
//!
//! A program may have written anything into its region. Unknown kinds, wrong lengths and invalid
//! references to chunks are therefore counted as refused and skipped.

mod drain;
mod followed_thread;
mod heap_records;
mod note;

mod totals;

pub use followed_thread::FollowedThread;
pub use note::{Note, PythonKeys};
pub use totals::SlotTotals;
pub use tprof_ring::Pass;

use crate::shared::Region;
use crate::shared::clock::Clock;
use crate::targets::heap::{Heap, HeapOp};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use tprof_ring::{ReadLimits, RingReader};
use tprof_trace::HeapBlock;
use tprof_trace::model::{ProcessIndex, ThreadIndex};
use tprof_wire::record::{ExtKind, SLOT_BYTES};
use tprof_wire::region::*;

/// Time between two reads of a chunk that its thread is still filling, ns. More frequent reads
/// would make collector and thread compete for the same cache line.
const PARTIAL_NS: u64 = 4_000_000;

/// Number of events between prefetching the table entry of a block and using it.
const AHEAD: usize = 16;
/// If more events than this wait, the order is given up once no event could be ordered for
/// [`STUCK_NS`].
const MAX_PENDING: usize = 1 << 20;
/// If no event could be put into order for this long, the waiting events are applied in the order
/// of their clocks, although earlier ones may follow.
const STUCK_NS: u64 = 1_000_000_000;
/// Bytes that are read from one ring before the next ring is read: two large chunks.
const MAX_TAKEN_BYTES: usize = 2 * LARGE_BYTES - SLOT_BYTES * 64;

/// One pass over a ring: how far the ring is read, and what receives the records.
struct RingRead<'a> {
    clock: &'a Clock,
    limits: ReadLimits,
    /// Whether only this thread has records, so that they are in order of time already.
    alone: bool,
    notes: &'a mut dyn Notes,
}

/// Receives what an image's rings contain besides heap events, and full blocks of heap events.
pub trait Notes {
    /// Handles a note that `thread` wrote at `clock`.
    fn note(&mut self, thread: &mut FollowedThread, clock: u64, note: Note);
    /// Handles a record of the CUPTI agent. Returns false if the record is malformed.
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

/// An image, with the rings that the collector reads.
pub struct Image {
    /// The memory that the image shares with the collector.
    pub region: Arc<Region>,
    /// Index of the process in the trace file.
    pub index: ProcessIndex,
    /// The threads that are followed now.
    pub threads: Vec<FollowedThread>,
    known: Box<[u64; SLOT_WORDS]>,
    threads_changed: u32,
    /// The heap, with the block of events that is being filled for the trace.
    pub heap: Heap,
    pending: Vec<HeapOp>,
    /// Number of events read so far, which the report counts as recorded.
    pub recorded: u64,
    /// Number of records read so far that aren't heap events.
    pub(in crate::targets) taken: u64,
    /// How many of them are CUPTI's records of calls, and of the work of devices.
    pub(in crate::targets) of_calls: u64,
    pub(in crate::targets) of_devices: u64,
    /// Number of records that were malformed and skipped.
    pub refused: u64,
    /// Sums of the counters of threads that have ended.
    pub past: SlotTotals,
    payload: Vec<u64>,
    /// Time when events were last put into order, ns.
    settled_at: u64,
    /// Reading of the clock before which the followed threads have no records left in their rings;
    /// `u64::MAX` after the end of the process.
    pub read_until: u64,
}

/// A thread that has taken a slot in the region since the last look.
pub struct NewThread {
    /// Index of the slot.
    pub slot: usize,
    /// Id of the thread.
    pub tid: u32,
    /// Clock when the thread took the slot, in ticks.
    pub clock: u64,
}

impl Image {
    /// Returns the state of a region that was not read yet.
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
            of_calls: 0,
            of_devices: 0,
            refused: 0,
            past: SlotTotals::default(),
            payload: Vec::new(),
            settled_at: 0,
            read_until: 0,
        }
    }

    /// Returns the threads that have taken a slot since the last call.
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
                    // The thread has taken the slot but not filled it in yet, so look at it again
                    // next time.
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

    /// Begins to read the ring of a thread, whose row in the trace has this index.
    pub fn follow(&mut self, new: &NewThread, index: ThreadIndex) {
        let chunk = ChunkRef(self.region.slot(new.slot).first_chunk.load(Relaxed));
        self.threads.push(FollowedThread {
            slot: new.slot,
            index,
            tid: new.tid,
            ring: RingReader::new(chunk, new.clock),
            ended: None,
            spawning: None,
            taken: 0,
            whole: true,
            allocated: (0, 0),
            counts: false,
        });
    }

    /// Stops reading the ring of the thread at index `at` of [`Image::threads`], which has ended.
    /// Frees its slot and its chunk for new threads.
    pub fn retire(&mut self, at: usize) -> FollowedThread {
        let thread = self.threads.swap_remove(at);
        let slot = self.region.slot(thread.slot);
        // Adds the thread's last change of live bytes to the region's sum. The sum must include all
        // threads, because the peak is computed from it.
        let left = slot.live_delta();
        slot.room_to_allocate.store(0, Relaxed);
        slot.room_to_free.store(0, Relaxed);
        self.region.header().live_bytes.fetch_add(left, AcqRel);
        self.past.add(slot);
        let (chunk, bytes) = thread.ring.chunk();
        self.region.free_chunk(chunk, bytes);
        for counter in [
            &slot.allocations,
            &slot.frees,
            &slot.allocated_bytes,
            &slot.wait_ticks,
            &slot.waits,
            &slot.lost,
            &slot.stack_ticks,
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

    /// Returns the sums of the counters of all threads, past and present.
    pub fn slot_totals(&self) -> SlotTotals {
        let mut totals = self.past;
        for thread in &self.threads {
            totals.add(self.region.slot(thread.slot));
        }
        totals
    }

    /// Reads the records in the rings, the agent's up to a reading of the clock, and returns their
    /// number.
    pub fn drain(
        &mut self,
        clock: &Clock,
        now_ns: u64,
        pass: Pass,
        until: u64,
        notes: &mut dyn Notes,
    ) -> u64 {
        let last = pass == Pass::Last;
        let mut horizon = clock.now();
        let alone = self.threads.len() == 1 && self.pending.is_empty();
        let before = self.recorded + self.taken;
        let mut threads = std::mem::take(&mut self.threads);
        // If many events wait for one slow ring, rings that are ahead of it are not read. Their
        // records stay in them, so the order of all events is kept.
        let crowded = self.pending.len() > MAX_PENDING / 2;
        let slowest = threads.iter().filter(|t| !t.whole).map(|t| t.ring.clock()).min();
        for thread in &mut threads {
            if crowded && !last && slowest.is_some_and(|slowest| thread.ring.clock() > slowest) {
                horizon = horizon.min(thread.ring.clock());
                continue;
            }
            let partial = !alone || now_ns.wrapping_sub(thread.ring.partial_at()) >= PARTIAL_NS;
            let pass = if pass == Pass::Live && partial { Pass::Partial } else { pass };
            let limits = ReadLimits { pass, now_ns, agent_until: until };
            thread.whole = self.drain_thread(thread, &mut RingRead { clock, limits, alone, notes });
            if !thread.whole {
                horizon = horizon.min(thread.ring.clock());
            } else if pass == Pass::Live {
                horizon = horizon.min(self.read_until);
            }
        }
        let ended = last && threads.iter().all(|thread| thread.whole);
        self.read_until = if ended { u64::MAX } else { horizon };
        let whole =
            last && threads.iter().all(|t| t.ring.chunk().1 == 0 || t.taken < MAX_TAKEN_BYTES);
        self.threads = threads;
        if !self.pending.is_empty() {
            let stuck = self.pending.len() > MAX_PENDING && now_ns - self.settled_at > STUCK_NS;
            // If the events are stuck, they may be applied in a slightly wrong order. That is
            // counted as one refused record.
            self.refused += u64::from(stuck && !whole);
            let settled = self.merge(clock, if whole || stuck { u64::MAX } else { horizon }, notes);
            if settled > 0 {
                self.settled_at = now_ns;
            }
        }
        self.recorded + self.taken - before
    }

    /// Reads the last records of a thread that has ended, while other threads go on.
    pub fn drain_ended_thread(
        &mut self,
        at: usize,
        clock: &Clock,
        now_ns: u64,
        notes: &mut dyn Notes,
    ) {
        let mut thread = self.threads.swap_remove(at);
        for _ in 0..100_000 {
            let before = thread.ring.position();
            let limits = ReadLimits { pass: Pass::Last, now_ns, agent_until: u64::MAX };
            self.drain_thread(&mut thread, &mut RingRead { clock, limits, alone: false, notes });
            if thread.ring.position() == before {
                break;
            }
        }
        self.threads.push(thread);
        let last = self.threads.len() - 1;
        self.threads.swap(at, last);
    }

    /// Applies the waiting events of several threads in order of time, up to `horizon`. Earlier
    /// events can't follow. Returns the number of applied events.
    fn merge(&mut self, clock: &Clock, horizon: u64, notes: &mut dyn Notes) -> usize {
        // The events consist of one sorted run per thread and pass. The stable sort recognizes such
        // runs and merges them in nearly linear time.
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

    /// Whether all events that were read have been applied.
    pub fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }
}
