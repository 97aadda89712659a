//! Records allocations of an allocator other than libc's, which the program reports itself: the
//! crate `tprof` does so for the allocator that its `#[global_allocator]` wraps.
//!
//! While such an allocator works, the libc hooks must not count its own calls, or `System`'s blocks
//! would count twice. So each call here hides the thread from those hooks until the allocator
//! returned. A block's size is the size that the program requested, since the usable size of
//! another allocator's blocks isn't known.

use crate::block::Thread;
use crate::loss::count_missed;
use crate::state::HOT;
use crate::{gate, heap_sampling, ring, stacks, state};
use tprof_wire::record::Kind;
use tprof_wire::region::mem_mode;
use tprof_wire::sync::Ordering::Relaxed;

/// Bit in the value that [`hide`] returns, set if it hid the thread from the libc hooks. The low 32
/// bits are the thread's [`mem_mode`].
const HIDDEN: u64 = 1 << 32;
/// Bit in that value, set if recording was on when the call began, so that the call is recorded.
const IS_ON: u64 = 1 << 33;

/// Heap totals of this process: `struct tprof_heap`.
#[repr(C)]
pub struct HeapTotals {
    /// Bytes that are live.
    pub live_bytes: u64,
    /// The most bytes that were live at one time.
    pub peak_bytes: u64,
}

/// Heap totals of this process, exact to within 64 KiB per thread; `None` unless `--mem sampled`
/// counts them.
pub fn totals() -> Option<HeapTotals> {
    let live_bytes = heap_sampling::live_bytes(gate::recording()?)?;
    let peak = state::header()?.peak_bytes.load(Relaxed);
    Some(HeapTotals { live_bytes, peak_bytes: live_bytes.max(u64::try_from(peak).unwrap_or(0)) })
}

#[inline(always)]
fn hide(thread: &Thread) -> u64 {
    let mode = thread.mem_mode();
    thread.set_mem_mode(mem_mode::OFF);
    u64::from(mode) | HIDDEN | if thread.is_on() { IS_ON } else { 0 }
}

/// Restores the thread's mode. Returns the thread, and whether to record the call; `None` if the
/// thread was not hidden.
#[inline(always)]
fn show(hidden: u64) -> Option<(&'static Thread, bool)> {
    if hidden & HIDDEN == 0 {
        return None;
    }
    let thread = gate::recording()?;
    thread.set_mem_mode(hidden as u32);
    Some((thread, hidden & IS_ON != 0))
}

/// Called before the allocator allocates a block. Returns the value to pass to [`allocated`].
#[inline(always)]
pub fn allocating() -> u64 {
    if HOT.is_uncounted() {
        return 0;
    }
    match gate::recording() {
        Some(thread) => hide(thread),
        None => {
            count_missed();
            0
        }
    }
}

/// Called when the allocator has returned a block of `bytes` bytes, or null.
#[inline(always)]
pub fn allocated(hidden: u64, block: *mut u8, bytes: usize, sp: usize, fp: usize) {
    let Some((thread, is_on)) = show(hidden) else { return };
    if !block.is_null() {
        record_allocation(thread, is_on, Kind::Alloc, block, bytes, (sp, fp));
    }
}

#[inline(always)]
fn record_allocation(
    thread: &Thread,
    is_on: bool,
    kind: Kind,
    block: *mut u8,
    bytes: usize,
    (sp, fp): (usize, usize),
) {
    match (thread.mem_mode(), is_on) {
        (mem_mode::SAMPLED, true) => heap_sampling::counted(thread, block, (bytes, bytes), sp, fp),
        (mem_mode::SAMPLED, false) => heap_sampling::allocated_while_off(thread, bytes),
        (mem_mode::EXACT, true) => {
            let stack = stacks::stack(thread, sp, fp);
            ring::heap(thread, kind, block as u64, bytes as u64, stack, thread.clock());
        }
        _ => {}
    }
}

/// Called before the allocator frees a block of `bytes` bytes. Returns the value to pass to
/// [`freed`].
#[inline(always)]
pub fn freeing(block: *mut u8, bytes: usize) -> u64 {
    if HOT.is_uncounted() {
        return 0;
    }
    let Some(thread) = gate::recording() else {
        count_missed();
        return 0;
    };
    record_free(thread, Kind::Free, block, bytes);
    hide(thread)
}

/// Records that a block ends. Under `exact` the record is of `kind`; under `sampled` it is a free.
#[inline(always)]
fn record_free(thread: &Thread, kind: Kind, block: *mut u8, bytes: usize) {
    match (thread.mem_mode(), thread.is_on()) {
        (mem_mode::SAMPLED, true) => heap_sampling::freed(thread, block, bytes),
        (mem_mode::SAMPLED, false) => heap_sampling::freed_while_off(thread, block, bytes),
        (mem_mode::EXACT, true) => ring::heap(thread, kind, block as u64, 0, 0, thread.clock()),
        _ => {}
    }
}

/// Called when the allocator has freed the block.
#[inline(always)]
pub fn freed(hidden: u64) {
    let _ = show(hidden);
}

/// Called before the allocator reallocates a block of `bytes` bytes. Returns the value to pass to
/// [`reallocated`].
#[inline(always)]
pub fn reallocating(block: *mut u8, bytes: usize) -> u64 {
    if HOT.is_uncounted() {
        return 0;
    }
    let Some(thread) = gate::recording() else {
        // Two events are lost: the end of the old block and the new block.
        count_missed();
        count_missed();
        return 0;
    };
    record_free(thread, Kind::ReallocFree, block, bytes);
    hide(thread)
}

/// Called when the allocator has returned the new block, or null if there was no memory. `from` is
/// the old block with its bytes, `to` the new block with its bytes.
#[inline(always)]
pub fn reallocated(
    hidden: u64,
    from: (*mut u8, usize),
    to: (*mut u8, usize),
    sp: usize,
    fp: usize,
) {
    let Some((thread, is_on)) = show(hidden) else { return };
    match (to.0.is_null(), thread.mem_mode()) {
        (true, mem_mode::EXACT) if is_on => {
            ring::heap(thread, Kind::ReallocFailed, from.0 as u64, 0, 0, thread.clock());
        }
        // `reallocating` counted a free, but the old block is still live, so it is counted again.
        (true, _) => record_allocation(thread, is_on, Kind::Alloc, from.0, from.1, (sp, fp)),
        (false, _) => record_allocation(thread, is_on, Kind::ReallocAlloc, to.0, to.1, (sp, fp)),
    }
}
