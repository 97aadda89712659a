//! The fast path of the allocator's hooks, which nearly every block takes under `--mem sampled`.
//!
//! It only counts a block that isn't sampled, with instructions that call no function and save no
//! register. While recording is off it updates only live bytes, so that they are right when
//! recording is on again. The slow path, [`crate::heap`], handles the rest: threads that have not
//! recorded yet, other modes, blocks that are mappings of their own, and samples.
//!
//! `malloc`, `calloc` and `free` do the same in assembly while recording is on
//! (`preload-shim/src/hooks/heap.rs`), in ten instructions fewer, and come here otherwise.

use crate::arch;
use crate::block::Thread;
use crate::heap_sampling::{self, settle};
use crate::sampled_blocks::is_candidate;
use crate::{heap, state};
use core::mem::offset_of;
use tprof_wire::record::Kind;
use tprof_wire::region::ThreadSlot;
use tprof_wire::sync::Ordering::Relaxed;

/// This thread's block if it may take the fast path: `--mem sampled` is on, the gate has admitted
/// the thread, and [`heap_sampling::usable`] reads sizes from headers.
#[inline(always)]
fn thread() -> Option<&'static Thread> {
    let (block, stamp) = arch::thread_block_and_complement::<{ Thread::FAST_STAMP }>();
    let is_open = stamp == state::WIPED.generation.load(Relaxed);
    // SAFETY: the value matches the generation only in a thread's own block, see `gate::recording`.
    is_open.then(|| unsafe { &*block.cast() })
}

/// The usable bytes of a block; `None` if it is a mapping of its own.
///
/// # Safety
/// `block` is a live block of glibc's allocator, and not null.
#[inline(always)]
unsafe fn usable(block: *mut u8) -> Option<usize> {
    // SAFETY: the caller guarantees a live block of glibc, which stores a header before it.
    let header = unsafe { heap_sampling::header(block) };
    (!heap_sampling::is_mapping(header)).then(|| heap_sampling::within_heap(header))
}

/// Counts a block that `malloc` or `calloc` returned, and returns it. `sp` and `fp` are the stack
/// and frame pointer at the hook's entry.
///
/// # Safety
/// `block` is null, or the real allocator just returned it.
pub unsafe extern "C" fn allocated(block: *mut u8, bytes: usize, sp: usize, fp: usize) -> *mut u8 {
    if block.is_null() {
        return block;
    }
    let Some(thread) = thread() else {
        // SAFETY: the caller guarantees that the real allocator just returned the block.
        return unsafe { allocated_slow(block, bytes, sp, fp) };
    };
    // SAFETY: the caller guarantees that the real allocator just returned the block. `thread()`
    // returned a block, which says that the allocator is glibc's.
    let Some(usable) = (unsafe { usable(block) }) else {
        // SAFETY: the caller guarantees that the real allocator just returned the block.
        return unsafe { allocated_slow(block, bytes, sp, fp) };
    };
    let slot = thread.slot();
    // SAFETY: the offsets are those of word-sized fields of `ThreadSlot` and `Thread`, to which
    // only this thread writes.
    unsafe {
        if thread.is_on() {
            arch::increment::<{ offset_of!(ThreadSlot, allocations) }>(slot);
            arch::add::<{ offset_of!(ThreadSlot, allocated_bytes) }>(slot, bytes);
            if arch::subtract_to_negative::<{ offset_of!(Thread, countdown) }>(thread, bytes) {
                return sampled(block, bytes, sp, fp, thread, usable);
            }
        }
        if arch::subtract_to_negative::<{ offset_of!(ThreadSlot, room_to_allocate) }>(slot, usable)
        {
            return settled(block, thread);
        }
    }
    block
}

/// # Safety
/// The same premises as [`allocated`].
#[cold]
#[inline(never)]
unsafe extern "C" fn allocated_slow(block: *mut u8, bytes: usize, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: the caller guarantees that the real allocator just returned the block.
    unsafe { heap::allocated(block, bytes, sp, fp) };
    opaque(block)
}

/// Records a sampled block, and returns it.
#[cold]
#[inline(never)]
pub extern "C" fn sampled(
    block: *mut u8,
    bytes: usize,
    sp: usize,
    fp: usize,
    thread: &Thread,
    usable: usize,
) -> *mut u8 {
    heap_sampling::keep(thread, block, bytes, Kind::Alloc, sp, fp);
    heap_sampling::add_live(thread, usable as i64);
    opaque(block)
}

/// Called for a block that used up the thread's room to allocate. Returns the block.
#[cold]
#[inline(never)]
pub extern "C" fn settled(block: *mut u8, thread: &Thread) -> *mut u8 {
    settle(thread);
    opaque(block)
}

/// Returns the block, but hides from the compiler that the result equals the argument. Otherwise
/// the compiler would keep the argument in a register across the call, and save that register on
/// every path of the caller.
fn opaque(block: *mut u8) -> *mut u8 {
    arch::scalar(block as u64) as *mut u8
}

/// The work that is left to do before a block is freed.
pub enum Freeing {
    /// The block is counted.
    Done,
    /// The block is counted, and [`settle_own`] is due.
    Settle,
    /// The block is not counted yet: [`heap::freeing`] counts it.
    SlowPath,
}

/// Called when a block is about to be freed.
///
/// # Safety
/// `block` is not null, and is a live block of the real allocator.
#[inline(always)]
pub unsafe fn freeing(block: *mut u8) -> Freeing {
    let Some(thread) = thread() else { return Freeing::SlowPath };
    // SAFETY: the caller guarantees a live block. `thread()` returned a block, which says that the
    // allocator is glibc's.
    let Some(usable) = (unsafe { usable(block) }) else { return Freeing::SlowPath };
    if is_candidate(block as usize) {
        return Freeing::SlowPath;
    }
    let slot = thread.slot();
    // SAFETY: the offsets are those of word-sized fields of `ThreadSlot`, to which only this thread
    // writes.
    unsafe {
        if thread.is_on() {
            arch::increment::<{ offset_of!(ThreadSlot, frees) }>(slot);
        }
        match arch::subtract_to_negative::<{ offset_of!(ThreadSlot, room_to_free) }>(slot, usable) {
            true => Freeing::Settle,
            false => Freeing::Done,
        }
    }
}

/// Called when a block used up the thread's room to free.
#[cold]
#[inline(never)]
pub fn settle_own() {
    if let Some(thread) = thread() {
        settle(thread);
    }
}
