//! Manages the chunk that a thread writes, and replaces it by the next one when it is full.

use super::chunks::{SPARE, take_chunk};
use super::wait::wake_collector;
use crate::block::Thread;
use crate::{collector_liveness, state};
use tprof_wire::record::SLOT_BYTES;
use tprof_wire::region::*;
use tprof_wire::sync::Ordering::*;

/// Makes `chunk` the one that this thread writes from now on.
fn use_chunk(thread: &Thread, chunk: ChunkRef) {
    let Some((offset, bytes)) = chunk.place() else { return };
    let region = state::REGION.load(Relaxed);
    let base = region as usize + offset;
    // SAFETY: the chunk is in the region, this thread has taken it, and its pages are accessible.
    let head = unsafe { &*(base as *const ChunkHeader) };
    head.generation.store(thread.slot().generation.load(Relaxed), Relaxed);
    head.owner.store(thread.slot_index(region) as u32, Release);
    thread.chunk.set(base);
    thread.chunk_bytes.set(bytes as u32);
    thread.limit.set(base + bytes - SPARE * SLOT_BYTES);
    thread.cursor.set(base + SLOT_BYTES);
    thread.epoch.set(0);
}

/// Takes a new thread's first chunk: a small one, or a large one if no small one is free.
pub fn first_chunk(thread: &Thread) -> Option<ChunkRef> {
    let chunk = take_chunk(false, false).or_else(|| take_chunk(true, false))?;
    use_chunk(thread, chunk);
    Some(chunk)
}

/// Whether this thread has filled all chunks that it may fill, and does not wait for room. Records
/// that don't fit are then dropped without a system call.
pub fn is_shut(thread: &Thread) -> bool {
    let slot = thread.slot();
    let filled = slot.filled_chunks.load(Relaxed);
    let is_full = filled.wrapping_sub(slot.drained_chunks.load(Acquire)) >= CHUNKS_PER_THREAD;
    is_full && (collector_liveness::is_stalled(thread) || !waits_on_full())
}

fn waits_on_full() -> bool {
    state::header().is_some_and(|header| header.wait_on_full.load(Relaxed) != 0)
}

/// Replaces the current chunk by another one. Returns false if none is free now.
pub fn move_on(thread: &Thread) -> bool {
    let slot = thread.slot();
    let filled = slot.filled_chunks.load(Relaxed);
    if filled.wrapping_sub(slot.drained_chunks.load(Acquire)) >= CHUNKS_PER_THREAD {
        return false;
    }
    let quiet = thread.is_quiet();
    let Some(next) = take_chunk(true, quiet).or_else(|| take_chunk(false, quiet)) else {
        return false;
    };
    // SAFETY: this thread has taken the current chunk, which begins with its header and stays
    // mapped.
    let head = unsafe { &*(thread.chunk.get() as *const ChunkHeader) };
    let end =
        (thread.cursor.get() - thread.chunk.get()).min(thread.chunk_bytes.get() as usize) as u64;
    slot.filled_chunks.store(filled.wrapping_add(1), Relaxed);
    use_chunk(thread, next);
    head.next.store(end << 32 | u64::from(next.0), Release);
    if !quiet {
        wake_collector();
    }
    true
}
