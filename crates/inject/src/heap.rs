//! Reports of the allocator hooks: every event (`exact`), or exact counters
//! and sampled events (`sampled`).
//!
//! - `exact` counts the bytes that were requested. `sampled` counts them as the allocator rounds
//!   them, because it reads the block's size to make frees cheap; its peak and live bytes are
//!   exact to 64 KiB per thread.
//! - A `realloc` is a free and an allocation of the new size at its own stack, also in place. A
//!   failed one counts nothing.
//! - A forked child starts at zero. Blocks that it inherited are its parent's; to free one is a
//!   free of an unknown block.
//! - While recording is off no event is counted. Under `sampled`, threads keep the balance of
//!   live bytes. Under `exact`, blocks that came or went then are unknown, so live and peak bytes
//!   are missing from the first gap on.

use crate::block::Thread;
use crate::loss::count_missed;
use crate::{gate, ring, sampling, stacks};
use tprof_wire::record::Kind;
use tprof_wire::region::mem_mode;

/// A block was handed out. `sp` and `fp` are the hook's at its entry.
///
/// # Safety
/// `block` is null or what the real allocator returned a moment ago.
#[inline(always)]
pub unsafe fn allocated(block: *mut u8, bytes: usize, sp: usize, fp: usize) {
    if block.is_null() {
        return;
    }
    let Some(thread) = gate::recording() else { return count_missed() };
    match (thread.mem_mode(), thread.is_on()) {
        // SAFETY: the caller's premise, and not null.
        (mem_mode::SAMPLED, true) => unsafe { sampling::allocated(thread, block, bytes, sp, fp) },
        // SAFETY: the caller's premise, and not null.
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

/// A block is about to be given back.
///
/// # Safety
/// `block` is not null, and what the program may give to `free`: a live block of the real
/// allocator.
#[inline(always)]
pub unsafe fn freeing(block: *mut u8) {
    let Some(thread) = gate::recording() else { return count_missed() };
    match (thread.mem_mode(), thread.is_on()) {
        // SAFETY: the caller's premise.
        (mem_mode::SAMPLED, true) => unsafe { sampling::freeing(thread, block) },
        // SAFETY: the caller's premise.
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

/// The facts about a block that must be known before `realloc` takes it.
pub enum Reallocation {
    /// The record of its beginning is written.
    Exact,
    /// Live bytes are counted.
    Sampled(sampling::Old),
}

/// `realloc` of `block` is about to be called.
///
/// # Safety
/// The same premises as [`freeing`].
#[inline(always)]
pub unsafe fn reallocating(block: *mut u8) -> Option<Reallocation> {
    let Some(thread) = gate::recording() else {
        // Two events are missed: the reallocation's beginning and its result.
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
            // SAFETY: the caller's premise.
            let old = unsafe { sampling::reallocating(thread, block) };
            Some(Reallocation::Sampled(old))
        }
        _ => None,
    }
}

/// `realloc` of `from` returned `to`; `failed` if that is null because there was no memory.
///
/// # Safety
/// `to` is null or what the real allocator returned a moment ago. `from` is only a number.
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
        // SAFETY: the caller's premise.
        Reallocation::Sampled(old) => unsafe {
            sampling::reallocated(thread, old, to, bytes, sp, fp)
        },
    }
}
