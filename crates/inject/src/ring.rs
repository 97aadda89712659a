//! Writes records: reserve a slot, fill it, make it valid.
//!
//! A slot is reserved by one unlocked `xadd`, so a signal handler that
//! interrupts a hook gets the next slot, never the same. A slot becomes valid
//! when its first word is stored, last. A handler that leaves by `longjmp`
//! leaves a hole, which the collector notices and counts.
//!
//! Chunks end `SPARE` slots early: reservations made by nested handlers in
//! the few instructions before the limit is seen still fall inside the chunk.

use crate::state::{self, off};
use crate::thread::Thread;
use crate::{arch, stall, sys};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use tprof_wire::record::{self, ExtKind, Kind, SLOT_BYTES};
use tprof_wire::region::*;

/// Slots kept free at the end of a chunk.
const SPARE: usize = 8;

/// Bytes between the slot being written and the line that is fetched for later.
const FETCH_AHEAD: usize = 1024;

/// Takes a set bit out of a bitmap of free things; its index.
///
/// # Safety
/// `region` is this process's region.
pub unsafe fn take(region: *mut u8, bitmap: usize, words: usize) -> Option<usize> {
    for word in 0..words {
        // SAFETY: the bitmap lies in the region, which is mapped for good.
        let bits = unsafe { &*region.add(bitmap + word * 8).cast::<AtomicU64>() };
        let mut now = bits.load(Relaxed);
        while now != 0 {
            let lowest = now & now.wrapping_neg();
            match bits.compare_exchange_weak(now, now & !lowest, AcqRel, Relaxed) {
                Ok(_) => return Some(word * 64 + lowest.trailing_zeros() as usize),
                Err(other) => now = other,
            }
        }
    }
    None
}

/// Puts a bit back.
///
/// # Safety
/// As [`take`]; `index` came from it.
pub unsafe fn give_back(region: *mut u8, bitmap: usize, index: usize) {
    // SAFETY: as `take`; `index` came from it.
    let bits = unsafe { &*region.add(bitmap + index / 64 * 8).cast::<AtomicU64>() };
    bits.fetch_or(1 << (index % 64), Release);
}

/// Large chunks whose pages are there.
static POPULATED: [AtomicU64; LARGE_WORDS] = [const { AtomicU64::new(0) }; LARGE_WORDS];

/// A new region: none of its pages are there, and if little of it was mapped,
/// most chunks do not exist.
///
/// # Safety
/// `region` is this process's region, mapped but not published yet.
pub unsafe fn prepare(region: *mut u8, sparing: bool) {
    if sparing {
        for word in 0..LARGE_WORDS {
            set_word(region, LARGE_BITMAP_OFFSET + word * 8, 0);
        }
        for word in SPARING_CHUNKS / 64..SMALL_WORDS {
            set_word(region, SMALL_BITMAP_OFFSET + word * 8, 0);
        }
    }
    for word in &POPULATED {
        word.store(0, Relaxed);
    }
}

fn set_word(region: *mut u8, offset: usize, value: u64) {
    // SAFETY: the bitmaps lie in the part of the region that is always mapped.
    unsafe { (*region.add(offset).cast::<AtomicU64>()).store(value, Relaxed) };
}

/// Takes a chunk whose pages are there: a write to it cannot fail.
fn take_chunk(large: bool, quiet: bool) -> Option<ChunkRef> {
    let region = state::REGION.load(Relaxed);
    if region.is_null() {
        return None;
    }
    let (bitmap, words) =
        if large { (LARGE_BITMAP_OFFSET, LARGE_WORDS) } else { (SMALL_BITMAP_OFFSET, SMALL_WORDS) };
    // SAFETY: the region of this process.
    let index = unsafe { take(region, bitmap, words) }?;
    let chunk = if large { ChunkRef::large(index) } else { ChunkRef::small(index) };
    let (offset, bytes) = chunk.place()?;
    // SAFETY: the chunk lies in the region.
    let at = unsafe { region.add(offset) };
    // The large chunks go round and round: they are opened and filled once.
    let known = if large { POPULATED.get(index / 64) } else { None };
    let bit = 1 << (index % 64);
    if known.is_some_and(|word| word.load(Relaxed) & bit != 0) {
        return Some(chunk);
    }
    // Under seccomp it may be closed, and may not be opened now.
    if quiet || !open(at, bytes) {
        // SAFETY: `index` was taken above.
        unsafe { give_back(region, bitmap, index) };
        return None;
    }
    if let Some(word) = known {
        word.fetch_or(bit, Relaxed);
    }
    Some(chunk)
}

/// Makes a chunk writable and its pages present; false if there is no memory.
fn open(at: *mut u8, bytes: usize) -> bool {
    const EINVAL: isize = -22; // before Linux 5.14
    if !sys::protect(at, bytes, sys::flags::PROT_READ | sys::flags::PROT_WRITE) {
        return false;
    }
    let result = sys::advise(at, bytes, sys::flags::MADV_POPULATE_WRITE);
    result >= 0 || result == EINVAL
}

/// Opens as many chunks as a thread may fill, for a process that may make no
/// system call soon.
pub fn open_some() {
    let region = state::REGION.load(Relaxed);
    let mut taken = [None; CHUNKS_PER_THREAD as usize];
    for place in &mut taken {
        *place = take_chunk(true, false);
    }
    for chunk in taken.into_iter().flatten() {
        // SAFETY: taken above; large chunks are numbered behind the small ones.
        unsafe { give_back(region, LARGE_BITMAP_OFFSET, chunk.0 as usize - 1 - SMALL_CHUNKS) };
    }
}

/// Makes `chunk` the one this thread writes.
fn use_chunk(thread: &mut Thread, chunk: ChunkRef) {
    let Some((offset, bytes)) = chunk.place() else { return };
    let base = state::REGION.load(Relaxed) as usize + offset;
    // SAFETY: the chunk lies in the region and is this thread's now.
    let head = unsafe { &*(base as *const ChunkHeader) };
    let slot = thread.slot();
    head.generation.store(slot.generation.load(Relaxed), Relaxed);
    let index = (thread.slot as usize - (state::REGION.load(Relaxed) as usize + SLOTS_OFFSET))
        / size_of::<ThreadSlot>();
    head.owner.store(index as u32, Release);
    thread.chunk = base;
    thread.chunk_bytes = bytes;
    thread.limit = base + bytes - SPARE * SLOT_BYTES;
    thread.cursor = base + SLOT_BYTES;
    thread.epoch = 0;
}

/// A new thread's first chunk: a small one if there is any.
pub fn first_chunk(thread: &mut Thread, _slot: &ThreadSlot, _index: u32) -> Option<ChunkRef> {
    let chunk = take_chunk(false, false).or_else(|| take_chunk(true, false))?;
    use_chunk(thread, chunk);
    Some(chunk)
}

/// Writes a heap record.
#[inline(always)]
pub fn heap(thread: &mut Thread, kind: Kind, address: u64, size: u64, stack: u32, clock: u64) {
    if !record::is_narrow(address, size) {
        return wide(thread, kind, address, size, stack, clock);
    }
    if clock >> record::EPOCH_SHIFT != thread.epoch && !epoch(thread, clock) {
        return;
    }
    let (word0, word1) = record::heap(kind, address, size, stack, clock);
    put(thread, word0, word1);
}

#[cold]
#[inline(never)]
fn epoch(thread: &mut Thread, clock: u64) -> bool {
    let before = thread.epoch;
    thread.epoch = clock >> record::EPOCH_SHIFT;
    // Without it the event behind it could not be placed in time: if there is
    // no room, that event is the one that is lost.
    if put(thread, Kind::Time as u64, clock) {
        return true;
    }
    thread.epoch = before;
    false
}

#[cold]
#[inline(never)]
fn wide(thread: &mut Thread, kind: Kind, address: u64, size: u64, stack: u32, clock: u64) {
    ext(thread, ExtKind::Wide, kind as u32, clock, &[address, size, u64::from(stack), 0]);
}

/// Reserves one slot and fills it.
#[inline(always)]
fn put(thread: &mut Thread, word0: u64, word1: u64) -> bool {
    // SAFETY: the cursor is this thread's.
    let mut at = unsafe { arch::advance(&raw mut thread.cursor, SLOT_BYTES) };
    if at >= thread.limit {
        match overrun(thread, at) {
            Some(place) => at = place,
            None => return false,
        }
    }
    arch::prefetch_for_write(at + FETCH_AHEAD);
    // SAFETY: `at` is a reserved slot inside a chunk of this thread.
    unsafe { write(at, word0, word1) };
    true
}

#[inline(always)]
unsafe fn write(at: usize, word0: u64, word1: u64) {
    // SAFETY: the caller reserved the slot; 16-byte aligned.
    unsafe {
        (*((at + 8) as *const AtomicU64)).store(word1, Relaxed);
        (*(at as *const AtomicU64)).store(word0, Release);
    }
}

/// An extended record: with signals blocked, so that its slots are consecutive
/// and end inside the chunk. Rare: mappings, life, new stacks.
pub fn ext(thread: &mut Thread, kind: ExtKind, argument: u32, clock: u64, payload: &[u64]) -> bool {
    let slots = 1 + payload.len().div_ceil(2);
    let bytes = slots * SLOT_BYTES;
    if bytes > SMALL_BYTES - (SPARE + 1) * SLOT_BYTES {
        return false;
    }
    if thread.cursor + bytes > thread.limit && is_shut(thread) {
        lose_ext(thread, kind);
        return false;
    }
    let mut waited = Wait::new();
    let quiet = thread.is_quiet() || thread.masked;
    loop {
        let mask = if quiet { 0 } else { sys::block_signals() };
        if thread.cursor + bytes <= thread.limit || move_on(thread) {
            let at = thread.cursor;
            thread.cursor += bytes;
            let pending = Kind::Pending as u64 | (slots as u64) << 16;
            // SAFETY: the first of the reserved slots.
            unsafe { (*(at as *const AtomicU64)).store(pending, Release) };
            for (i, word) in payload.iter().enumerate() {
                // SAFETY: inside the reserved slots.
                unsafe { (*((at + SLOT_BYTES + i * 8) as *const AtomicU64)).store(*word, Relaxed) };
            }
            // SAFETY: the first of the reserved slots.
            unsafe { write(at, record::ext(kind, slots, argument), clock) };
            if !quiet {
                sys::restore_signals(mask);
            }
            waited.finish(thread);
            return true;
        }
        if !quiet {
            sys::restore_signals(mask);
        }
        if !waited.more(thread) {
            waited.finish(thread);
            lose_ext(thread, kind);
            return false;
        }
    }
}

/// An extended record of something frequent: its slots are reserved by one
/// unlocked `xadd`, as a heap event's is, where [`ext`] makes two system calls.
///
/// A handler that interrupts it gets the slots behind. If that handler never
/// comes back, what is left says that it is pending, and the collector goes on
/// behind it once something is written there.
#[inline]
pub fn quick<const N: usize>(
    thread: &mut Thread,
    kind: ExtKind,
    argument: u32,
    clock: u64,
    payload: &[u64; N],
) -> bool {
    let slots = 1 + N.div_ceil(2);
    let bytes = slots * SLOT_BYTES;
    if thread.cursor + bytes > thread.limit {
        return ext(thread, kind, argument, clock, payload);
    }
    // SAFETY: the cursor is this thread's.
    let at = unsafe { arch::advance(&raw mut thread.cursor, bytes) };
    // A handler may have filled the chunk since the look at the limit; behind it
    // some slots are kept free, as for any reservation.
    if at + bytes > thread.limit + SPARE * SLOT_BYTES {
        lose(thread);
        return false;
    }
    let pending = Kind::Pending as u64 | (slots as u64) << 16;
    // SAFETY: the first of the reserved slots.
    unsafe { (*(at as *const AtomicU64)).store(pending, Release) };
    for (i, word) in payload.iter().enumerate() {
        // SAFETY: inside the reserved slots.
        unsafe { (*((at + SLOT_BYTES + i * 8) as *const AtomicU64)).store(*word, Relaxed) };
    }
    arch::prefetch_for_write(at + FETCH_AHEAD);
    // SAFETY: the first of the reserved slots.
    unsafe { write(at, record::ext(kind, slots, argument), clock) };
    true
}

/// A one-slot reservation at `at` passed the limit.
#[cold]
#[inline(never)]
fn overrun(thread: &mut Thread, mut at: usize) -> Option<usize> {
    if is_shut(thread) && take_back(thread, at) {
        lose(thread);
        return None;
    }
    let mut waited = Wait::new();
    let quiet = thread.is_quiet();
    loop {
        let mask = if quiet { 0 } else { sys::block_signals() };
        let inside = at.wrapping_sub(thread.chunk) < thread.chunk_bytes;
        let place = if !inside || at < thread.limit {
            // A handler moved this thread on to another chunk in the meantime
            // (the reservation in the old one stands: it lies before that
            // chunk's published end), or a retry found room.
            Some(at)
        } else {
            // Undo the reservation: handlers that came later are done by now.
            thread.cursor = at;
            if move_on(thread) {
                let place = thread.cursor;
                thread.cursor += SLOT_BYTES;
                Some(place)
            } else {
                None
            }
        };
        if !quiet {
            sys::restore_signals(mask);
        }
        if place.is_some() {
            waited.finish(thread);
            return place;
        }
        if !waited.more(thread) {
            waited.finish(thread);
            lose(thread);
            return None;
        }
        // SAFETY: the cursor is this thread's.
        at = unsafe { arch::advance(&raw mut thread.cursor, SLOT_BYTES) };
    }
}

/// Whether this thread may fill no further chunk, and does not wait for one either: what
/// finds no place is dropped, without a system call.
fn is_shut(thread: &Thread) -> bool {
    let slot = thread.slot();
    let filled = slot.filled_chunks.load(Relaxed);
    let is_full = filled.wrapping_sub(slot.drained_chunks.load(Acquire)) >= CHUNKS_PER_THREAD;
    is_full && (stall::stands_still(thread) || !waits_on_full())
}

fn waits_on_full() -> bool {
    state::header().is_some_and(|header| header.wait_on_full.load(Relaxed) != 0)
}

/// Undoes the one-slot reservation at `at`, unless a handler has moved on meanwhile.
fn take_back(thread: &mut Thread, at: usize) -> bool {
    // SAFETY: the cursor is this thread's own; its handlers interrupt between instructions.
    let cursor = unsafe { AtomicUsize::from_ptr(&raw mut thread.cursor) };
    cursor.compare_exchange(at + SLOT_BYTES, at, Relaxed, Relaxed).is_ok()
}

/// Leaves the current chunk for another; false if none may be had now.
fn move_on(thread: &mut Thread) -> bool {
    let slot = thread.slot();
    let filled = slot.filled_chunks.load(Relaxed);
    if filled.wrapping_sub(slot.drained_chunks.load(Acquire)) >= CHUNKS_PER_THREAD {
        return false;
    }
    let quiet = thread.is_quiet();
    let Some(next) = take_chunk(true, quiet).or_else(|| take_chunk(false, quiet)) else {
        return false;
    };
    // SAFETY: the current chunk is mapped and this thread's.
    let head = unsafe { &*(thread.chunk as *const ChunkHeader) };
    let end = (thread.cursor - thread.chunk).min(thread.chunk_bytes) as u64;
    slot.filled_chunks.store(filled.wrapping_add(1), Relaxed);
    use_chunk(thread, next);
    head.next.store(end << 32 | u64::from(next.0), Release);
    if !quiet {
        wake_collector();
    }
    true
}

fn wake_collector() {
    if let Some(session) = state::session()
        && session.sleeping.load(Relaxed) != 0
    {
        sys::futex_wake(session.sleep.as_ptr(), 1);
    }
}

#[cold]
fn lose(thread: &Thread) {
    arch::add_local(&thread.slot().lost, 1);
}

/// Counts an extended record that was dropped, among the events or the notes. Stacks, names
/// of Python's functions and texts are counted by whoever defines them again later.
#[cold]
fn lose_ext(thread: &Thread, kind: ExtKind) {
    use ExtKind::*;
    match kind {
        Stack | PythonFrame => {}
        ThreadStart | ThreadExit | ThreadName | ProcessExit | Fork | Exec | ExecFailed | Reaped
        | Spawned | Text | ClockJoin | RangeThread => {
            if let Some(header) = state::header() {
                header.notes_lost.fetch_add(1, Relaxed);
            }
        }
        _ => lose(thread),
    }
}

/// A bounded wait for the collector.
struct Wait {
    began: u64,
    rounds: u64,
}

impl Wait {
    #[inline(always)]
    fn new() -> Wait {
        Wait { began: 0, rounds: 0 }
    }

    /// Waits a little; false once the bound is reached, and at once while the collector
    /// stands still.
    #[cold]
    fn more(&mut self, thread: &Thread) -> bool {
        let (Some(header), Some(session)) = (state::header(), state::session()) else {
            return false;
        };
        if session.closed.load(Relaxed) != 0 {
            state::turn_off(off::COLLECTOR_GONE);
            return false;
        }
        if header.wait_on_full.load(Relaxed) == 0 || stall::stands_still(thread) {
            return false;
        }
        if thread.is_quiet() && POPULATED.iter().all(|word| word.load(Relaxed) == 0) {
            // None was opened in time, and none may be now: there is nothing to wait for.
            return false;
        }
        if thread.strict {
            // No system call and no clock: spin a bounded number of times.
            self.rounds += 1;
            core::hint::spin_loop();
            let goes_on = self.rounds < 1 << 24;
            if !goes_on {
                stall::waited_in_vain();
            }
            return goes_on;
        }
        let now = thread.clock();
        if self.rounds == 0 {
            self.began = now;
            header.waiting.fetch_add(1, Relaxed);
        }
        self.rounds += 1;
        if now.wrapping_sub(self.began) > header.wait_ticks.load(Relaxed) {
            return false;
        }
        if thread.is_quiet() {
            core::hint::spin_loop();
            return true;
        }
        wake_collector();
        let drained = &thread.slot().drained_chunks;
        sys::futex_wait(drained.as_ptr(), drained.load(Relaxed), 500_000);
        true
    }

    #[inline(always)]
    fn finish(&mut self, thread: &Thread) {
        if self.rounds != 0 {
            self.account(thread);
        }
    }

    #[cold]
    fn account(&mut self, thread: &Thread) {
        if thread.strict {
            return;
        }
        let slot = thread.slot();
        arch::add_local(&slot.waits, 1);
        arch::add_local(&slot.wait_ticks, thread.clock().wrapping_sub(self.began));
        if let Some(header) = state::header() {
            header.waiting.fetch_sub(1, Relaxed);
        }
        self.rounds = 0;
    }
}
