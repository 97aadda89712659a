//! Handles a reservation that passed the end of its chunk.

use super::lost::lose;
use super::next_chunk::{is_shut, move_on};
use super::wait::Wait;
use crate::block::Thread;
use crate::{arch, sys};
use core::sync::atomic::Ordering::*;
use tprof_wire::record::SLOT_BYTES;

/// Handles a one-slot reservation at `at` that passed the limit. Returns the address of a slot to
/// fill; `None` if the record is lost.
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
            // A signal handler has moved this thread on to another chunk meanwhile, or a retry
            // found room. In the first case the reservation in the old chunk is valid, since it
            // lies before that chunk's published end.
            Some(at)
        } else {
            // Undo the reservation. Handlers that reserved slots after it have finished by now.
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
/// The cursor may stand behind the chunk: a handler that leaves a hook by `longjmp` leaves a
/// reservation there, and as long as there is no other chunk nothing undoes it. So every slot
/// before the cursor counts as inside, even behind the chunk's end. A slot of a chunk that a
/// handler left may lie there by chance; at worst it becomes a hole.
fn is_in_chunk(thread: &Thread, at: usize) -> bool {
    let chunk = thread.chunk.get();
    let reserved = thread.cursor.get().wrapping_sub(chunk);
    at.wrapping_sub(chunk) < (thread.chunk_bytes.get() as usize).max(reserved)
}

/// Undoes the one-slot reservation at `at`. Returns false if a handler has moved the cursor
/// meanwhile.
fn take_back(thread: &Thread, at: usize) -> bool {
    let cursor = thread.cursor.memory();
    cursor.compare_exchange(at + SLOT_BYTES, at, Relaxed, Relaxed).is_ok()
}
