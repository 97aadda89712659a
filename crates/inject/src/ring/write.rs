//! Writes a record: reserves slots, fills them, and makes them valid.

use super::chunks::SPARE;
use super::full::overrun;
use super::lost::{lose, lose_ext};
use super::next_chunk::{is_shut, move_on};
use super::wait::Wait;
use crate::block::Thread;
use crate::{arch, sys};
use tprof_wire::record::{self, ExtKind, Kind, SLOT_BYTES};
use tprof_wire::region::SMALL_BYTES;
use tprof_wire::sync::{AtomicU64, Ordering::*};

/// Distance in bytes from the slot that is written to the cache line that is prefetched.
const FETCH_AHEAD: usize = 1024;

/// Writes a heap record.
#[inline(always)]
pub fn heap(thread: &Thread, kind: Kind, address: u64, size: u64, stack: u32, clock: u64) {
    if !record::is_narrow(address, size) {
        return wide(thread, kind, address, size, stack, clock);
    }
    if clock >> record::EPOCH_SHIFT != thread.epoch.get() && !epoch(thread, clock) {
        return;
    }
    let (word0, word1) = record::heap(kind, address, size, stack, clock);
    put(thread, word0, word1);
}

#[cold]
#[inline(never)]
fn epoch(thread: &Thread, clock: u64) -> bool {
    let before = thread.epoch.get();
    thread.epoch.set(clock >> record::EPOCH_SHIFT);
    // Without its time record, the event that follows could not be dated. So if there is no room
    // for the time record, that event counts as lost.
    if put(thread, Kind::Time as u64, clock) {
        return true;
    }
    thread.epoch.set(before);
    false
}

#[cold]
#[inline(never)]
fn wide(thread: &Thread, kind: Kind, address: u64, size: u64, stack: u32, clock: u64) {
    ext(thread, ExtKind::Wide, kind as u32, clock, &[address, size, u64::from(stack), 0]);
}

/// Reserves one slot and fills it.
#[inline(always)]
fn put(thread: &Thread, word0: u64, word1: u64) -> bool {
    let mut at = arch::advance(thread.cursor.memory(), SLOT_BYTES);
    if at >= thread.limit.get() {
        match overrun(thread, at) {
            Some(place) => at = place,
            None => return false,
        }
    }
    arch::prefetch_for_write(at + FETCH_AHEAD);
    // SAFETY: `at` is the address of a slot that this thread has reserved inside its chunk.
    unsafe { write(at, word0, word1) };
    true
}

#[inline(always)]
unsafe fn write(at: usize, word0: u64, word1: u64) {
    // SAFETY: the caller has reserved the slot at `at`, which is 16-byte aligned.
    unsafe {
        (*((at + 8) as *const AtomicU64)).store(word1, Relaxed);
        (*(at as *const AtomicU64)).store(word0, Release);
    }
}

/// Writes an extended record. Signals are blocked meanwhile, so that its slots are consecutive and
/// inside the chunk. Such records are rare: mappings, processes and threads, new stacks. Returns
/// false if the record is lost.
pub fn ext(thread: &Thread, kind: ExtKind, argument: u32, clock: u64, payload: &[u64]) -> bool {
    let slots = 1 + payload.len().div_ceil(2);
    let bytes = slots * SLOT_BYTES;
    if bytes > SMALL_BYTES - (SPARE + 1) * SLOT_BYTES {
        return false;
    }
    if thread.cursor.get() + bytes > thread.limit.get() && is_shut(thread) {
        lose_ext(thread, kind);
        return false;
    }
    let mut waited = Wait::new();
    let quiet = thread.is_quiet() || thread.masked.get();
    loop {
        let mask = if quiet { 0 } else { sys::block_signals() };
        if thread.cursor.get() + bytes <= thread.limit.get() || move_on(thread) {
            let at = thread.cursor.get();
            thread.cursor.set(thread.cursor.get() + bytes);
            let pending = Kind::Pending as u64 | (slots as u64) << 16;
            // SAFETY: `at` is the address of the first reserved slot.
            unsafe { (*(at as *const AtomicU64)).store(pending, Release) };
            for (i, word) in payload.iter().enumerate() {
                // SAFETY: the payload's words are inside the reserved slots.
                unsafe { (*((at + SLOT_BYTES + i * 8) as *const AtomicU64)).store(*word, Relaxed) };
            }
            // SAFETY: `at` is the address of the first reserved slot.
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

/// Writes an extended record of a frequent event. Its slots are reserved by one `xadd` without
/// `lock`, like those of a heap event, while [`ext`] makes two system calls. Returns false if the
/// record is lost.
///
/// A signal handler that interrupts this gets the slots after it. If that handler never returns,
/// the unfinished record stays marked as pending. The collector skips it once something is written
/// after it.
#[inline]
pub fn quick<const N: usize>(
    thread: &Thread,
    kind: ExtKind,
    argument: u32,
    clock: u64,
    payload: &[u64; N],
) -> bool {
    quick_words(thread, kind, argument, clock, payload)
}

/// Like [`quick`], for a payload whose length isn't constant.
pub fn quick_text(
    thread: &Thread,
    kind: ExtKind,
    argument: u32,
    clock: u64,
    payload: &[u64],
) -> bool {
    quick_words(thread, kind, argument, clock, payload)
}

#[inline(always)]
fn quick_words(thread: &Thread, kind: ExtKind, argument: u32, clock: u64, payload: &[u64]) -> bool {
    let slots = 1 + payload.len().div_ceil(2);
    let bytes = slots * SLOT_BYTES;
    if thread.cursor.get() + bytes > thread.limit.get() {
        return ext(thread, kind, argument, clock, payload);
    }
    let at = arch::advance(thread.cursor.memory(), bytes);
    // A handler may have filled the chunk since the limit was checked. Then the slots after the
    // limit, which are kept free for such cases, may suffice.
    if at + bytes > thread.limit.get() + SPARE * SLOT_BYTES {
        lose(thread);
        return false;
    }
    let pending = Kind::Pending as u64 | (slots as u64) << 16;
    // SAFETY: `at` is the address of the first reserved slot.
    unsafe { (*(at as *const AtomicU64)).store(pending, Release) };
    for (i, word) in payload.iter().enumerate() {
        // SAFETY: the payload's words are inside the reserved slots.
        unsafe { (*((at + SLOT_BYTES + i * 8) as *const AtomicU64)).store(*word, Relaxed) };
    }
    arch::prefetch_for_write(at + FETCH_AHEAD);
    // SAFETY: `at` is the address of the first reserved slot.
    unsafe { write(at, record::ext(kind, slots, argument), clock) };
    true
}
