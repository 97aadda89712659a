//! Handles a reservation of a slot that passed the end of the thread's chunk.

use super::lost::lose;
use super::next_chunk::{is_shut, move_on};
use super::wait::Wait;
use crate::block::Thread;
use crate::{arch, sys};
use tprof_wire::record::SLOT_BYTES;
use tprof_wire::sync::Ordering::*;

/// Handles the reservation of one slot at `at`, which passed the limit. Returns the address of a
/// slot to fill; `None` if the record is lost.
#[cold]
#[inline(never)]
pub fn overrun(thread: &Thread, mut at: usize) -> Option<usize> {
    if is_shut(thread) && take_back(thread, at) {
        lose(thread);
        return None;
    }
    let mut waited = Wait::new();
    let quiet = thread.is_quiet();
    loop {
        let mask = if quiet { 0 } else { sys::block_signals() };
        let place = if !is_in_chunk(thread, at) || at < thread.limit.get() {
            // Either a signal handler has moved this thread to another chunk in the meantime, or a
            // retry found room. In the first case the reservation in the old chunk is valid, since
            // it is before that chunk's published end.
            Some(at)
        } else {
            // Undo the reservation. Handlers that reserved slots after it have returned by now.
            thread.cursor.set(at);
            if move_on(thread) {
                let place = thread.cursor.get();
                thread.cursor.set(thread.cursor.get() + SLOT_BYTES);
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
        at = arch::advance(thread.cursor.memory(), SLOT_BYTES);
    }
}

/// Whether the reservation at `at` was made in the chunk that the thread writes now.
///
/// The cursor may be beyond the chunk's end. A handler that leaves a hook by `longjmp` leaves a
/// reservation there, and nothing undoes it until the thread gets another chunk. So every slot
/// before the cursor counts as inside, even beyond the end. By chance, a slot of another chunk that
/// a handler left may be in that range. At worst it becomes a hole.
fn is_in_chunk(thread: &Thread, at: usize) -> bool {
    let chunk = thread.chunk.get();
    let reserved = thread.cursor.get().wrapping_sub(chunk);
    at.wrapping_sub(chunk) < (thread.chunk_bytes.get() as usize).max(reserved)
}

/// Undoes the reservation of one slot at `at`. Returns false if a handler has moved the cursor in
/// the meantime.
fn take_back(thread: &Thread, at: usize) -> bool {
    let cursor = thread.cursor.memory();
    cursor.compare_exchange(at + SLOT_BYTES, at, Relaxed, Relaxed).is_ok()
}
