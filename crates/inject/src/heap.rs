//! What the allocator hooks record: every allocation and free (`--mem exact`), or exact counters
//! and a sample of the blocks (`--mem sampled`).
//!
//! - `exact` counts the bytes that the program requested. `sampled` counts the bytes that the
//!   allocator reserved for a block, since it can read that size from the block cheaply when the
//!   block is freed. Its peak and live bytes are exact to 64 KiB per thread.
//! - A `realloc` counts as a free and an allocation of the new size with a stack of its own, even
//!   if the block stays in place. A failed `realloc` counts as nothing.
//! - A forked child's counters start at zero. The blocks that it inherited belong to its parent. If
//!   the child frees one, the collector sees a free of an unknown block.
//! - While recording is off, the hooks record no event. Under `sampled`, threads still update live
//!   bytes, unless recording is off in the session: then the hooks only call the real functions.
//!   If blocks were allocated or freed uncounted, the run lacks live and peak bytes from that gap on.

use crate::block::Thread;
use crate::loss::count_missed;
use crate::state::HOT;
use crate::{gate, ring, sampling, stacks};
use tprof_wire::record::Kind;
use tprof_wire::region::mem_mode;

/// Records that a block was allocated. `sp` and `fp` are the stack and frame pointer at the hook's
/// entry.
///
/// # Safety
/// `block` is null or the real allocator just returned it.
#[inline(always)]
pub unsafe fn allocated(block: *mut u8, bytes: usize, sp: usize, fp: usize) {
    if block.is_null() || HOT.is_uncounted() {
        return;
    }
    let Some(thread) = gate::recording() else { return count_missed() };
    match (thread.mem_mode(), thread.is_on()) {
        // SAFETY: the real allocator just returned the block, and it isn't null.
        (mem_mode::SAMPLED, true) => unsafe { sampling::allocated(thread, block, bytes, sp, fp) },
        // SAFETY: the real allocator just returned the block, and it isn't null.
        (mem_mode::SAMPLED, false) => unsafe {
            sampling::allocated_while_off(thread, sampling::usable(thread, block));
        },
        (mem_mode::EXACT, true) => exact(thread, Kind::Alloc, block, bytes, sp, fp),
        _ => {}
    }
}

#[inline(always)]
fn exact(thread: &Thread, kind: Kind, block: *mut u8, bytes: usize, sp: usize, fp: usize) {
    let stack = stacks::stack(thread, sp, fp);
    let clock = thread.clock();
    ring::heap(thread, kind, block as u64, bytes as u64, stack, clock);
}

/// Records that a block is about to be freed.
///
/// # Safety
/// `block` is not null, and is a live block of the real allocator.
#[inline(always)]
pub unsafe fn freeing(block: *mut u8) {
    if HOT.is_uncounted() {
        return;
    }
    let Some(thread) = gate::recording() else { return count_missed() };
    match (thread.mem_mode(), thread.is_on()) {
        // SAFETY: the caller guarantees a live block of the real allocator.
        (mem_mode::SAMPLED, true) => unsafe { sampling::freeing(thread, block) },
        // SAFETY: the caller guarantees a live block of the real allocator.
        (mem_mode::SAMPLED, false) => unsafe {
            sampling::freed_while_off(thread, block, sampling::usable(thread, block));
        },
        (mem_mode::EXACT, true) => {
            let clock = thread.clock();
            ring::heap(thread, Kind::Free, block as u64, 0, 0, clock);
        }
        _ => {}
    }
}

/// What a hook learned about a block before it called the real `realloc`, for [`reallocated`].
pub enum Reallocation {
    /// `ReallocFree` was recorded for the old block.
    Exact,
    /// The facts about the old block that the counters need.
    Sampled(sampling::Old),
}

/// Prepares for a `realloc` of `block`. The hook calls this just before the real `realloc`.
///
/// # Safety
/// The same premises as [`freeing`].
#[inline(always)]
pub unsafe fn reallocating(block: *mut u8) -> Option<Reallocation> {
    if HOT.is_uncounted() {
        return None;
    }
    let Some(thread) = gate::recording() else {
        // Two events are lost: the end of the old block and the new block.
        count_missed();
        count_missed();
        return None;
    };
    match thread.mem_mode() {
        mem_mode::EXACT if thread.is_on() => {
            ring::heap(thread, Kind::ReallocFree, block as u64, 0, 0, thread.clock());
            Some(Reallocation::Exact)
        }
        mem_mode::SAMPLED => {
            // SAFETY: the caller guarantees a live block of the real allocator.
            let old = unsafe { sampling::reallocating(thread, block) };
            Some(Reallocation::Sampled(old))
        }
        _ => None,
    }
}

/// Records that `realloc` of `from` returned `to`. `failed` is true if `to` is null because there
/// was no memory; a null `to` otherwise means that `realloc` freed the block.
///
/// # Safety
/// `to` is null or the real allocator just returned it. `from` is not accessed.
#[inline(always)]
pub unsafe fn reallocated(
    old: Option<Reallocation>,
    from: *mut u8,
    to: *mut u8,
    bytes: usize,
    failed: bool,
    sp: usize,
    fp: usize,
) {
    let Some(old) = old else { return };
    let Some(thread) = gate::recording() else { return };
    match old {
        Reallocation::Exact if failed || to.is_null() => {
            let kind = if failed { Kind::ReallocFailed } else { Kind::ReallocAlloc };
            let clock = thread.clock();
            let address = if failed { from as u64 } else { 0 };
            ring::heap(thread, kind, address, 0, 0, clock);
        }
        Reallocation::Exact => exact(thread, Kind::ReallocAlloc, to, bytes, sp, fp),
        Reallocation::Sampled(old) if failed => sampling::not_reallocated(thread, old, from),
        // SAFETY: `to` is null or the real allocator just returned it.
        Reallocation::Sampled(old) => unsafe {
            sampling::reallocated(thread, old, to, bytes, sp, fp)
        },
    }
}
