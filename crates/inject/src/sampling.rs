//! `--mem sampled`: exact counters in shared pages, and a Poisson sample of
//! events by bytes.
//!
//! An allocation of `s` bytes is kept with probability `1 - exp(-s / interval)`,
//! one of at least `interval` bytes always. Frees are recorded for kept blocks
//! only, see [`crate::sampled_blocks`].

use crate::block::Thread;
use crate::sampled_blocks::{insert, is_candidate, remove};
use crate::{arch, ring, stacks, state};
use core::sync::atomic::{AtomicU32, Ordering::*};
use tprof_wire::record::Kind;
use tprof_wire::region::{ThreadSlot, mem_mode};

/// A thread adds its live bytes to the process's when they moved this far:
/// the peak is exact to within this many bytes per thread.
const FLUSH_BYTES: i64 = 64 << 10;

/// How usable sizes are read: not decided, by header, by call.
static USABLE: AtomicU32 = AtomicU32::new(0);
/// Agreements between header and call so far.
static AGREED: AtomicU32 = AtomicU32::new(0);
const BY_HEADER: u32 = 1;
const BY_CALL: u32 = 2;

/// Usable bytes of a block. Opens [`crate::fast_path`] to the thread, which samples blocks, once they are
/// read from headers.
///
/// # Safety
/// A live block of the real allocator, not null.
#[inline(always)]
pub unsafe fn usable(thread: &Thread, block: *mut u8) -> usize {
    if USABLE.load(Relaxed) == BY_HEADER {
        thread.enable_fast_path();
        // SAFETY: the caller's premise; the header has agreed with the allocator 64 times.
        let size = unsafe { header(block) };
        by_header(size)
    } else {
        // SAFETY: the caller's premise.
        unsafe { usable_by_call(block) }
    }
}

/// The word that glibc keeps before a block: its size, with flags in the low bits. Only used after 64
/// agreements with `malloc_usable_size`, and only where the real `malloc` is glibc's.
///
/// # Safety
/// A live block of glibc's allocator.
#[inline(always)]
pub unsafe fn header(block: *mut u8) -> usize {
    // SAFETY: the caller's premise: glibc's malloc wrote a size there.
    unsafe { *block.sub(8).cast::<usize>() }
}

/// Whether a block with this word before it is a mapping of its own.
#[inline(always)]
pub fn is_mapping(header: usize) -> bool {
    header & 2 != 0
}

/// The usable bytes of a block that is none.
#[inline(always)]
pub fn within_heap(header: usize) -> usize {
    (header & !7) - 8
}

#[inline(always)]
fn by_header(header: usize) -> usize {
    within_heap(header) - if is_mapping(header) { 8 } else { 0 }
}

/// # Safety
/// The same premises as [`usable`].
#[cold]
#[inline(never)]
unsafe fn usable_by_call(block: *mut u8) -> usize {
    let real = state::USABLE_SIZE.load(Relaxed);
    if real == 0 {
        return 0;
    }
    // SAFETY: found under the name `malloc_usable_size`; `block` is live by the caller's premise.
    let size = unsafe {
        let call: unsafe extern "C" fn(*mut u8) -> usize = core::mem::transmute(real);
        call(block)
    };
    if USABLE.load(Relaxed) != BY_CALL {
        // SAFETY: the caller's premise, and the allocator is glibc's.
        let agrees = || size == by_header(unsafe { header(block) });
        if state::MALLOC_IS_GLIBC.load(Relaxed) == 0 || !agrees() {
            USABLE.store(BY_CALL, Relaxed);
        } else if AGREED.fetch_add(1, Relaxed) >= 64 {
            USABLE.store(BY_HEADER, Relaxed);
        }
    }
    size
}

/// Counts an allocation and keeps it if it is sampled.
///
/// # Safety
/// The same premises as [`usable`].
#[inline(always)]
pub unsafe fn allocated(thread: &Thread, block: *mut u8, bytes: usize, sp: usize, fp: usize) {
    // SAFETY: the caller's premise.
    let usable = unsafe { usable(thread, block) };
    counted(thread, block, (bytes, usable), sp, fp);
}

/// As [`allocated`], for a block of any allocator: `bytes` are those asked for, and the usable
/// ones.
#[inline(always)]
pub fn counted(thread: &Thread, block: *mut u8, bytes: (usize, usize), sp: usize, fp: usize) {
    add(thread, block, bytes, Kind::Alloc, sp, fp);
}

/// Counts a block, and keeps it if it is sampled: whether it was kept.
///
/// The record of a kept block is stamped before its bytes are added up, so that a peak that it
/// makes lies at or after its record.
#[inline(always)]
fn add(
    thread: &Thread,
    block: *mut u8,
    (bytes, usable): (usize, usize),
    kind: Kind,
    sp: usize,
    fp: usize,
) -> bool {
    let slot = thread.slot();
    arch::add_local(&slot.allocations, 1);
    arch::add_local(&slot.allocated_bytes, bytes as u64);
    thread.countdown.set(thread.countdown.get().wrapping_sub(bytes as i64));
    let kept = thread.countdown.get() < 0 && keep(thread, block, bytes, kind, sp, fp);
    add_live(thread, usable as i64);
    kept
}

/// Moves this thread's live bytes, and the process's now and then.
#[inline(always)]
pub fn add_live(thread: &Thread, delta: i64) {
    // An addition and a load, not one exchange (2 ns): a handler in between
    // makes the sum read here newer, which is as good.
    let slot = thread.slot();
    arch::add_local_signed(&slot.live_delta, delta);
    if is_to_flush(slot) {
        flush(thread);
    }
}

/// Whether a thread's live bytes are to be added to the process's.
#[inline(always)]
pub fn is_to_flush(slot: &ThreadSlot) -> bool {
    (slot.live_delta.load(Relaxed) + FLUSH_BYTES) as u64 > 2 * FLUSH_BYTES as u64
}

/// The bytes that are live in the process, to within `FLUSH_BYTES` of each other thread; `None`
/// where they are not counted.
pub fn live_bytes(thread: &Thread) -> Option<u64> {
    if state::MEM_MODE.load(Relaxed) != mem_mode::SAMPLED {
        return None;
    }
    let own = thread.slot().live_delta.load(Relaxed);
    let live = state::header()?.live_bytes.load(Relaxed).saturating_add(own);
    // A thread may have freed what another allocated, and not added it up yet.
    Some(u64::try_from(live).unwrap_or(0))
}

/// Adds this thread's live bytes to the process's.
#[cold]
#[inline(never)]
pub fn flush(thread: &Thread) {
    let Some(header) = state::header() else { return };
    let delta = thread.slot().live_delta.swap(0, Relaxed);
    let mut before = header.live_bytes.load(Acquire);
    loop {
        // Read while the sum is known to be `before`: a block that another thread gives back after
        // this one's peak is then stamped after it, and one that is in the sum before it.
        let clock = thread.clock();
        let live = before + delta;
        match header.live_bytes.compare_exchange_weak(before, live, AcqRel, Acquire) {
            Ok(_) if header.peak_bytes.fetch_max(live, AcqRel) < live => {
                header.peak_clock.fetch_max(clock, AcqRel);
                return;
            }
            Ok(_) => return,
            Err(now) => before = now,
        }
    }
}

/// Keeps a block if it is sampled, which is to be asked once the countdown is below zero; whether it
/// was kept.
#[cold]
#[inline(never)]
pub fn keep(
    thread: &Thread,
    block: *mut u8,
    bytes: usize,
    kind: Kind,
    sp: usize,
    fp: usize,
) -> bool {
    let interval = state::INTERVAL.load(Relaxed).max(1);
    if bytes as u64 >= interval {
        // Kept always, and outside the Poisson process of the smaller ones.
        thread.countdown.set(thread.countdown.get().wrapping_add(bytes as i64));
    } else {
        if thread.random.get() == 0 {
            // This thread's first small allocation: nothing was drawn yet.
            thread.random.set(seed(thread));
            thread.draw_left.set(draw(thread, interval));
        }
        // At most `interval - 1` of a draw are in `countdown` at a time, so that
        // a block of `interval` bytes always comes here.
        while thread.countdown.get() < 0 && thread.draw_left.get() > 0 {
            let part = thread.draw_left.get().min(interval as i64 - 1).max(1);
            thread.countdown.set(thread.countdown.get() + part);
            thread.draw_left.set(thread.draw_left.get() - part);
        }
        if thread.countdown.get() >= 0 {
            return false;
        }
        // Draws are memoryless: beginning anew after a kept block is exact.
        thread.draw_left.set(draw(thread, interval));
        let part = thread.draw_left.get().min(interval as i64 - 1);
        thread.countdown.set(part);
        thread.draw_left.set(thread.draw_left.get() - part);
    }
    track(block);
    let stack = stacks::stack(thread, sp, fp);
    let clock = thread.clock();
    ring::heap(thread, kind, block as u64, bytes as u64, stack, clock);
    true
}

/// Remembers a kept block, so that its free is recorded.
fn track(block: *mut u8) {
    if !insert(block as usize)
        && let Some(header) = state::header()
    {
        header.samples_untracked.fetch_add(1, Relaxed);
    }
}

fn seed(thread: &Thread) -> u64 {
    let mut x =
        thread.clock() ^ (u64::from(thread.tid.get()) << 32) ^ (thread as *const Thread as u64);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ x >> 31) | 1
}

/// Exponentially distributed bytes with mean `interval`. Every draw is
/// memoryless, so drawing anew after each kept allocation is exact.
fn draw(thread: &Thread, interval: u64) -> i64 {
    let mut x = thread.random.get();
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    thread.random.set(x);
    let bits = x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11; // 53 bits
    let uniform = (bits as f64 + 0.5) / (1u64 << 53) as f64;
    (-ln(uniform) * interval as f64) as i64
}

/// Natural logarithm of a value in (0, 1), to about 1e-9: `core` has none.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i64 - 1023;
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52); // in [1, 2)
    // ln m = 2 artanh((m - 1) / (m + 1)), the argument at most 1/3
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let t2 = t * t;
    let mut term = t;
    let mut sum = 0.0;
    let mut n = 1.0;
    while n < 20.0 {
        sum += term / n;
        term *= t2;
        n += 2.0;
    }
    exponent as f64 * core::f64::consts::LN_2 + 2.0 * sum
}

/// Counts a free, and records it if the block was kept.
///
/// # Safety
/// The same premises as [`usable`].
#[inline(always)]
pub unsafe fn freeing(thread: &Thread, block: *mut u8) {
    // SAFETY: the caller's premise.
    freed(thread, block, unsafe { usable(thread, block) });
}

/// As [`freeing`], for a block of any allocator with so many usable bytes.
#[inline(always)]
pub fn freed(thread: &Thread, block: *mut u8, usable: usize) {
    arch::add_local(&thread.slot().frees, 1);
    gone(thread, block, usable);
}

/// A block is no longer live. Its record is stamped after its bytes are taken off, so that a peak
/// that it is part of lies before its record.
#[inline(always)]
fn gone(thread: &Thread, block: *mut u8, usable: usize) {
    add_live(thread, -(usable as i64));
    if is_candidate(block as usize) {
        record_end(thread, block, Kind::Free);
    }
}

#[cold]
#[inline(never)]
fn record_end(thread: &Thread, block: *mut u8, kind: Kind) -> bool {
    let kept = remove(block as usize);
    if kept {
        ring::heap(thread, kind, block as u64, 0, 0, thread.clock());
    }
    kept
}

/// A block before `realloc` takes it.
#[derive(Clone, Copy)]
pub struct Old {
    usable: usize,
    /// The block was kept, and the beginning of the `realloc` is recorded: so must be its end.
    kept: bool,
}

/// `realloc` of a block is about to be called. The block counts until it returns, however long
/// that takes: its bytes are there meanwhile.
///
/// # Safety
/// The same premises as [`usable`].
#[inline(always)]
pub unsafe fn reallocating(thread: &Thread, block: *mut u8) -> Old {
    // SAFETY: the caller's premise.
    let usable = unsafe { usable(thread, block) };
    let kept = is_candidate(block as usize) && record_end(thread, block, Kind::ReallocFree);
    Old { usable, kept }
}

/// Called when `realloc` returned null, as there was no memory: the block lives on.
pub fn not_reallocated(thread: &Thread, old: Old, block: *mut u8) {
    if old.kept {
        track(block);
        ring::heap(thread, Kind::ReallocFailed, block as u64, 0, 0, thread.clock());
    }
}

/// Called when `realloc` returned `to`, of so many bytes; null where it gave the block back.
///
/// # Safety
/// `to` is null, or as [`usable`].
#[inline(always)]
pub unsafe fn reallocated(
    thread: &Thread,
    old: Old,
    to: *mut u8,
    bytes: usize,
    sp: usize,
    fp: usize,
) {
    add_live(thread, -(old.usable as i64));
    let mut kept = false;
    if thread.is_on() {
        arch::add_local(&thread.slot().frees, 1);
        if !to.is_null() {
            let kind = if old.kept { Kind::ReallocAlloc } else { Kind::Alloc };
            // SAFETY: the caller's premise, and not null.
            let usable = unsafe { usable(thread, to) };
            kept = add(thread, to, (bytes, usable), kind, sp, fp);
        }
    } else if !to.is_null() {
        // SAFETY: the caller's premise, and not null.
        add_live(thread, unsafe { usable(thread, to) } as i64);
    }
    if old.kept && !kept {
        ring::heap(thread, Kind::ReallocAlloc, 0, 0, 0, thread.clock());
    }
}

/// Counts a block of so many usable bytes that was handed out while recording is off: only the
/// balance is kept, so that live bytes are known when it is on again.
#[inline(always)]
pub fn allocated_while_off(thread: &Thread, usable: usize) {
    add_live(thread, usable as i64);
}

/// Counts a block of so many usable bytes that is given back while recording is off: that ends a
/// kept one.
#[inline(always)]
pub fn freed_while_off(thread: &Thread, block: *mut u8, usable: usize) {
    gone(thread, block, usable);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_is_good_to_nine_digits() {
        for i in 1..10_000 {
            let x = f64::from(i) / 10_000.0;
            assert!((ln(x) - x.ln()).abs() < 1e-9 * (1.0 + x.ln().abs()), "{x}");
        }
        assert!((ln(1e-300) - 1e-300f64.ln()).abs() < 1e-6);
    }
}
