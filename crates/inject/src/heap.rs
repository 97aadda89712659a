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
use crate::{gate, heap_sampling, ring, stacks};
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
        (mem_mode::SAMPLED, true) => unsafe {
            heap_sampling::allocated(thread, block, bytes, sp, fp)
        },
        // SAFETY: the real allocator just returned the block, and it isn't null.
        (mem_mode::SAMPLED, false) => unsafe {
            heap_sampling::allocated_while_off(thread, heap_sampling::usable(thread, block));
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
        (mem_mode::SAMPLED, true) => unsafe { heap_sampling::freeing(thread, block) },
        // SAFETY: the caller guarantees a live block of the real allocator.
        (mem_mode::SAMPLED, false) => unsafe {
            heap_sampling::freed_while_off(thread, block, heap_sampling::usable(thread, block));
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
    Sampled(heap_sampling::Old),
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
            let old = unsafe { heap_sampling::reallocating(thread, block) };
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
        Reallocation::Sampled(old) if failed => heap_sampling::not_reallocated(thread, old, from),
        // SAFETY: `to` is null or the real allocator just returned it.
        Reallocation::Sampled(old) => unsafe {
            heap_sampling::reallocated(thread, old, to, bytes, sp, fp)
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Thread;
    use crate::state;
    use crate::testing::{Attached, Written};
    use tprof_wire::record::{address, size};
    use tprof_wire::region::off;
    use tprof_wire::sync::Ordering::SeqCst;

    /// A process whose hooks count, in this mode.
    fn recording(mode: u32) -> (Attached, &'static Thread) {
        let process = Attached::new();
        let thread = process.thread();
        thread.set_mem_mode(mode);
        for real in [&HOT.malloc, &HOT.calloc, &HOT.free] {
            real.store(1, SeqCst);
        }
        HOT.resolved();
        process.header().mem_mode.store(mode, SeqCst);
        state::attached(process.header());
        (process, thread)
    }

    fn events(process: &Attached) -> Vec<(Kind, u64, u64)> {
        let all = process.of_heap(process.thread());
        let of = |w: &Written| (w.kind, address(w.words[0]), size(w.words[0], w.words[1]));
        all.iter().map(of).collect()
    }

    const BLOCK: *mut u8 = core::ptr::without_provenance_mut(0x5000);
    const OTHER: *mut u8 = core::ptr::without_provenance_mut(0x6000);

    #[test]
    fn exact_recording_writes_each_allocation_and_free() {
        let (process, _) = recording(mem_mode::EXACT);
        // SAFETY: `exact` doesn't access blocks.
        unsafe {
            allocated(BLOCK, 100, 0, 0);
            allocated(core::ptr::null_mut(), 100, 0, 0);
            freeing(BLOCK);
        }
        assert_eq!(events(&process), [(Kind::Alloc, 0x5000, 100), (Kind::Free, 0x5000, 0)]);
    }

    #[test]
    fn a_realloc_is_recorded_before_and_after_it() {
        let (process, _) = recording(mem_mode::EXACT);
        // SAFETY: `exact` doesn't access blocks.
        unsafe {
            let old = reallocating(BLOCK);
            assert_eq!(events(&process), [(Kind::ReallocFree, 0x5000, 0)]);
            reallocated(old, BLOCK, OTHER, 200, false, 0, 0);
        }
        assert_eq!(events(&process)[1], (Kind::ReallocAlloc, 0x6000, 200));
    }

    #[test]
    fn a_realloc_that_failed_leaves_the_block_and_one_to_nothing_frees_it() {
        let (process, _) = recording(mem_mode::EXACT);
        // SAFETY: `exact` doesn't access blocks.
        unsafe {
            reallocated(reallocating(BLOCK), BLOCK, core::ptr::null_mut(), 200, true, 0, 0);
            reallocated(reallocating(BLOCK), BLOCK, core::ptr::null_mut(), 0, false, 0, 0);
        }
        let all = events(&process);
        assert_eq!(all[1], (Kind::ReallocFailed, 0x5000, 0));
        assert_eq!(all[3], (Kind::ReallocAlloc, 0, 0));
    }

    #[test]
    fn exact_recording_that_is_off_writes_nothing() {
        let (process, _) = recording(mem_mode::EXACT);
        process.header().off.store(off::PROGRAM, SeqCst);
        // SAFETY: `exact` doesn't access blocks.
        unsafe {
            allocated(BLOCK, 100, 0, 0);
            assert!(reallocating(BLOCK).is_none());
            reallocated(None, BLOCK, OTHER, 100, false, 0, 0);
            freeing(OTHER);
        }
        assert!(events(&process).is_empty());
    }

    #[test]
    fn hooks_do_nothing_while_the_session_does_not_count() {
        let (process, thread) = recording(mem_mode::SAMPLED);
        process.header().stop_session(off::SESSION | off::UNCOUNTED);
        assert!(HOT.is_uncounted());
        // SAFETY: the blocks are not accessed, since nothing is counted.
        unsafe {
            allocated(BLOCK, 100, 0, 0);
            freeing(BLOCK);
            assert!(reallocating(BLOCK).is_none());
        }
        assert_eq!(thread.slot().live_delta(), 0);
        process.header().start_session();
        assert!(!HOT.is_uncounted() && !process.header().is_balanced());
    }

    #[test]
    fn a_process_without_memory_recording_writes_nothing() {
        let (process, thread) = recording(mem_mode::OFF);
        // SAFETY: the blocks are not accessed in this mode.
        unsafe {
            allocated(BLOCK, 100, 0, 0);
            freeing(BLOCK);
            assert!(reallocating(BLOCK).is_none());
        }
        assert!(events(&process).is_empty());
        assert_eq!(thread.slot().allocations.load(SeqCst), 0);
    }

    #[test]
    fn events_before_the_collectors_answer_are_counted_and_a_realloc_is_two() {
        let (process, _) = recording(mem_mode::EXACT);
        state::WIPED.generation.store(0, SeqCst);
        state::WIPED.asked.store(1, SeqCst);
        state::WIPED.missed.store(0, SeqCst);
        state::PHASE.store(state::phase::LATER, SeqCst);
        crate::attach::look_again_later();
        // SAFETY: the blocks are not accessed, since nothing is recorded.
        unsafe {
            allocated(BLOCK, 100, 0, 0);
            assert!(reallocating(BLOCK).is_none());
            freeing(BLOCK);
        }
        assert_eq!(state::WIPED.missed.swap(0, SeqCst), 4);
        state::WIPED.asked.store(0, SeqCst);
        drop(process);
    }
}
