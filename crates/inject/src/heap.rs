//! What the allocator hooks report: every event (`exact`), or exact counters
//! and sampled events (`sampled`).

use crate::thread::{self, Thread};
use crate::{ring, sampling, stacks};
use tprof_wire::record::Kind;
use tprof_wire::region::mem_mode;

/// A block was handed out. `sp` and `fp` are the hook's at its entry.
#[inline(always)]
pub fn allocated(block: *mut u8, bytes: usize, sp: usize, fp: usize) {
    if block.is_null() {
        return;
    }
    let Some(thread) = thread::recording() else { return thread::missed() };
    if !thread.is_on() {
        return;
    }
    match thread.mem_mode {
        mem_mode::SAMPLED => sampling::allocated(thread, block, bytes, Kind::Alloc, sp, fp),
        mem_mode::EXACT => exact(thread, Kind::Alloc, block, bytes, sp, fp),
        _ => {}
    }
}

#[inline(always)]
fn exact(thread: &mut Thread, kind: Kind, block: *mut u8, bytes: usize, sp: usize, fp: usize) {
    let stack = stacks::stack(thread, sp, fp);
    let clock = thread.clock();
    ring::heap(thread, kind, block as u64, bytes as u64, stack, clock);
}

/// A block, not null, is about to be given back.
#[inline(always)]
pub fn freeing(block: *mut u8) {
    let Some(thread) = thread::recording() else { return thread::missed() };
    if !thread.is_on() {
        return;
    }
    match thread.mem_mode {
        mem_mode::SAMPLED => sampling::freeing(thread, block),
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

/// `realloc` of `block`, not null, is about to be called.
#[inline(always)]
pub fn reallocating(block: *mut u8) -> Option<Old> {
    let Some(thread) = thread::recording() else {
        // Its beginning and its result.
        thread::missed();
        thread::missed();
        return None;
    };
    if !thread.is_on() {
        return None;
    }
    let clock = thread.clock();
    match thread.mem_mode {
        mem_mode::EXACT => {
            ring::heap(thread, Kind::ReallocFree, block as u64, 0, 0, clock);
            Some(Old { clock, usable: 0 })
        }
        mem_mode::SAMPLED => Some(Old { clock, usable: sampling::usable(block) }),
        _ => None,
    }
}

/// `realloc` of `from` returned `to`; `failed` if that is null because there was no memory.
#[inline(always)]
pub fn reallocated(
    old: Option<Old>,
    from: *mut u8,
    to: *mut u8,
    bytes: usize,
    failed: bool,
    sp: usize,
    fp: usize,
) {
    let Some(old) = old else { return };
    let Some(thread) = thread::recording() else { return };
    match thread.mem_mode {
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
                sampling::allocated(thread, to, bytes, Kind::Alloc, sp, fp);
            }
        }
        _ => {}
    }
}
