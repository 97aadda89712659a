//! Handles a reservation that passed the end of its chunk.

use super::lost::lose;
use super::next_chunk::{is_shut, move_on};
use super::wait::Wait;
use crate::block::Thread;
use crate::{arch, sys};
use core::sync::atomic::Ordering::*;
use tprof_wire::record::SLOT_BYTES;

/// A one-slot reservation at `at` passed the limit.
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
            // A handler moved this thread on to another chunk in the meantime
            // (the reservation in the old one stands: it lies before that
            // chunk's published end), or a retry found room.
            Some(at)
        } else {
            // Undo the reservation: handlers that came later are done by now.
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
/// The cursor may stand behind the chunk: a handler that leaves a hook by `longjmp` leaves
/// a reservation there, and as long as there is no other chunk nothing undoes it. What lies
/// before the cursor is therefore inside, wherever the chunk ends; a slot that lies there by
/// chance, in a chunk that a handler left, is at worst a hole.
fn is_in_chunk(thread: &Thread, at: usize) -> bool {
    let chunk = thread.chunk.get();
    let reserved = thread.cursor.get().wrapping_sub(chunk);
    at.wrapping_sub(chunk) < (thread.chunk_bytes.get() as usize).max(reserved)
}

/// Undoes the one-slot reservation at `at`, unless a handler has moved on meanwhile.
fn take_back(thread: &Thread, at: usize) -> bool {
    let cursor = thread.cursor.memory();
    cursor.compare_exchange(at + SLOT_BYTES, at, Relaxed, Relaxed).is_ok()
}
