//! What the allocator hooks report: every event (`exact`), or exact counters
//! and sampled events (`sampled`).

use crate::block::Thread;
use crate::unrecorded::missed;
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
    let Some(thread) = gate::recording() else { return missed() };
    if !thread.is_on() {
        return;
    }
    match thread.mem_mode.get() {
        // SAFETY: the caller's premise, and not null.
        mem_mode::SAMPLED => unsafe {
            sampling::allocated(thread, block, bytes, Kind::Alloc, sp, fp);
        },
        mem_mode::EXACT => exact(thread, Kind::Alloc, block, bytes, sp, fp),
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
    let Some(thread) = gate::recording() else { return missed() };
    if !thread.is_on() {
        return;
    }
    match thread.mem_mode.get() {
        // SAFETY: the caller's premise.
        mem_mode::SAMPLED => unsafe { sampling::freeing(thread, block) },
        mem_mode::EXACT => {
            let clock = thread.clock();
            ring::heap(thread, Kind::Free, block as u64, 0, 0, clock);
        }
        _ => {}
    }
}

/// What must be known about a block before `realloc` takes it.
pub struct Old {
    clock: u64,
    usable: usize,
}

/// `realloc` of `block` is about to be called.
///
/// # Safety
/// As [`freeing`].
#[inline(always)]
pub unsafe fn reallocating(block: *mut u8) -> Option<Old> {
    let Some(thread) = gate::recording() else {
        // Its beginning and its result.
        missed();
        missed();
        return None;
    };
    if !thread.is_on() {
        return None;
    }
    let clock = thread.clock();
    match thread.mem_mode.get() {
        mem_mode::EXACT => {
            ring::heap(thread, Kind::ReallocFree, block as u64, 0, 0, clock);
            Some(Old { clock, usable: 0 })
        }
        // SAFETY: the caller's premise.
        mem_mode::SAMPLED => Some(Old { clock, usable: unsafe { sampling::usable(block) } }),
        _ => None,
    }
}

/// `realloc` of `from` returned `to`; `failed` if that is null because there was no memory.
///
/// # Safety
/// `to` is null or what the real allocator returned a moment ago. `from` is only a number.
#[inline(always)]
pub unsafe fn reallocated(
    old: Option<Old>,
    from: *mut u8,
    to: *mut u8,
    bytes: usize,
    failed: bool,
    sp: usize,
    fp: usize,
) {
    let Some(old) = old else { return };
    let Some(thread) = gate::recording() else { return };
    match thread.mem_mode.get() {
        mem_mode::EXACT if failed || to.is_null() => {
            let kind = if failed { Kind::ReallocFailed } else { Kind::ReallocAlloc };
            let clock = thread.clock();
            let address = if failed { from as u64 } else { 0 };
            ring::heap(thread, kind, address, 0, 0, clock);
        }
        mem_mode::EXACT => exact(thread, Kind::ReallocAlloc, to, bytes, sp, fp),
        mem_mode::SAMPLED if !failed => {
            sampling::freed(thread, from, old.usable, Kind::Free, old.clock);
            if !to.is_null() {
                // SAFETY: the caller's premise, and not null.
                unsafe { sampling::allocated(thread, to, bytes, Kind::Alloc, sp, fp) };
            }
        }
        _ => {}
    }
}
