//! `--mem sampled`: exact counters in shared pages, and a Poisson sample of allocations, by bytes.
//!
//! An allocation of `s` bytes is kept with probability `1 - exp(-s / interval)`, and always if it
//! has at least `interval` bytes. Frees are recorded for kept blocks only, see
//! [`crate::sampled_blocks`].

use crate::block::Thread;
use crate::sampled_blocks::{insert, is_candidate, remove};
use crate::{arch, ring, stacks, state};
use core::sync::atomic::{AtomicU32, Ordering::*};
use tprof_wire::record::Kind;
use tprof_wire::region::{ThreadSlot, mem_mode};

/// A thread adds its live bytes to the process's when they have changed by this much, so the peak
/// is exact to within this many bytes per thread.
const FLUSH_BYTES: i64 = 64 << 10;

/// How usable sizes are read: 0 until that is decided, then [`BY_HEADER`] or by call.
static USABLE: AtomicU32 = AtomicU32::new(0);
/// Number of times that header and call have agreed.
static AGREED: AtomicU32 = AtomicU32::new(0);
const BY_HEADER: u32 = 1;
const BY_CALL: u32 = 2;

/// Usable bytes of a block. Once sizes are read from headers, this also lets the thread, which
/// samples blocks, use [`crate::fast_path`].
///
/// # Safety
/// `block` is a live block of the real allocator, and not null.
#[inline(always)]
pub unsafe fn usable(thread: &Thread, block: *mut u8) -> usize {
    if USABLE.load(Relaxed) == BY_HEADER {
        thread.enable_fast_path();
        // SAFETY: the caller guarantees a live block; headers have agreed with the allocator's
        // function 64 times.
        let size = unsafe { header(block) };
        by_header(size)
    } else {
        // SAFETY: the caller guarantees a live block of the real allocator.
        unsafe { usable_by_call(block) }
    }
}

/// The word that glibc stores before a block: its size, with flags in the low bits. It is only used
/// if the real `malloc` is glibc's, and after it has agreed with `malloc_usable_size` 64 times.
///
/// # Safety
/// `block` is a live block of glibc's allocator.
#[inline(always)]
pub unsafe fn header(block: *mut u8) -> usize {
    // SAFETY: the caller guarantees a block of glibc's, whose malloc stored a size there.
    unsafe { *block.sub(8).cast::<usize>() }
}

/// Whether a block with this word before it is a mapping of its own.
#[inline(always)]
pub fn is_mapping(header: usize) -> bool {
    header & 2 != 0
}

/// The usable bytes of a block that is not a mapping of its own.
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
    // SAFETY: `real` is the address of `malloc_usable_size`, and the caller guarantees a live
    // block.
    let size = unsafe {
        let call: unsafe extern "C" fn(*mut u8) -> usize = core::mem::transmute(real);
        call(block)
    };
    if USABLE.load(Relaxed) != BY_CALL {
        // SAFETY: the caller guarantees a live block, and the allocator is glibc's.
        let agrees = || size == by_header(unsafe { header(block) });
        if state::MALLOC_IS_GLIBC.load(Relaxed) == 0 || !agrees() {
            USABLE.store(BY_CALL, Relaxed);
        } else if AGREED.fetch_add(1, Relaxed) >= 64 {
            USABLE.store(BY_HEADER, Relaxed);
        }
    }
    size
}

/// Counts an allocation, and records it if it is sampled.
///
/// # Safety
/// The same premises as [`usable`].
#[inline(always)]
pub unsafe fn allocated(thread: &Thread, block: *mut u8, bytes: usize, sp: usize, fp: usize) {
    // SAFETY: the caller guarantees a live block of the real allocator.
    let usable = unsafe { usable(thread, block) };
    counted(thread, block, (bytes, usable), sp, fp);
}

/// Like [`allocated`], for a block of any allocator. `bytes` are the bytes that were asked for, and
/// the usable bytes.
#[inline(always)]
pub fn counted(thread: &Thread, block: *mut u8, bytes: (usize, usize), sp: usize, fp: usize) {
    add(thread, block, bytes, Kind::Alloc, sp, fp);
}

/// Counts a block, and records it if it is sampled. Returns whether it was kept.
///
/// The time of a kept block's record is read before its bytes are added, so that a peak that the
/// block causes lies at or after its record.
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

/// Changes this thread's live bytes, and updates those of the process now and then.
#[inline(always)]
pub fn add_live(thread: &Thread, delta: i64) {
    // An addition and a load are faster than one exchange (2 ns). A handler in between makes the
    // sum that is read here newer, which does no harm.
    let slot = thread.slot();
    arch::add_local_signed(&slot.live_delta, delta);
    if is_to_flush(slot) {
        flush(thread);
    }
}

/// Whether it is time to add a thread's live bytes to the process's.
#[inline(always)]
pub fn is_to_flush(slot: &ThreadSlot) -> bool {
    (slot.live_delta.load(Relaxed) + FLUSH_BYTES) as u64 > 2 * FLUSH_BYTES as u64
}

/// The live bytes of the process, to within `FLUSH_BYTES` per other thread; `None` if they are not
/// counted.
pub fn live_bytes(thread: &Thread) -> Option<u64> {
    if state::MEM_MODE.load(Relaxed) != mem_mode::SAMPLED {
        return None;
    }
    let own = thread.slot().live_delta.load(Relaxed);
    let header = state::header().filter(|header| header.is_balanced())?;
    let live = header.live_bytes.load(Relaxed).saturating_add(own);
    // The sum may be negative: a thread may have freed what another allocated and has not added
    // yet.
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
        // The clock is read while the sum is known to be `before`. So a block that another thread
        // frees after this peak has a later time than the peak, and a block that is part of the sum
        // has an earlier one.
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

/// Records a block if it is sampled. Called once the countdown is below zero. Returns whether the
/// block was kept.
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
        // Large blocks are always kept, and are not part of the Poisson process of the smaller
        // ones.
        thread.countdown.set(thread.countdown.get().wrapping_add(bytes as i64));
    } else {
        if thread.random.get() == 0 {
            // This is the thread's first small allocation, for which nothing was drawn yet.
            thread.random.set(seed(thread));
            thread.draw_left.set(draw(thread, interval));
        }
        // At most `interval - 1` bytes of a draw are in `countdown` at a time, so that a block of
        // `interval` bytes always gets here.
        while thread.countdown.get() < 0 && thread.draw_left.get() > 0 {
            let part = thread.draw_left.get().min(interval as i64 - 1).max(1);
            thread.countdown.set(thread.countdown.get() + part);
            thread.draw_left.set(thread.draw_left.get() - part);
        }
        if thread.countdown.get() >= 0 {
            return false;
        }
        // The distribution is memoryless, so a new draw after each kept block is exact.
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

/// Adds a kept block to the set, so that its free is recorded.
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

/// Draws exponentially distributed bytes with mean `interval`.
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
    // SAFETY: the caller guarantees a live block of the real allocator.
    freed(thread, block, unsafe { usable(thread, block) });
}

/// As [`freeing`], for a block of any allocator with so many usable bytes.
#[inline(always)]
pub fn freed(thread: &Thread, block: *mut u8, usable: usize) {
    arch::add_local(&thread.slot().frees, 1);
    gone(thread, block, usable);
}

/// Counts that a block is no longer live. The time of its record is read after its bytes are
/// subtracted, so that a peak that includes the block lies before its record.
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

/// The facts about a block that are read before `realloc` is called.
#[derive(Clone, Copy)]
pub struct Old {
    usable: usize,
    /// Whether the block was kept. Then the beginning of the `realloc` is recorded, and so must be
    /// its end.
    kept: bool,
}

/// Called when `realloc` of a block is about to be called. The block stays live until `realloc`
/// returns, however long that takes, since its bytes are in use meanwhile.
///
/// # Safety
/// The same premises as [`usable`].
#[inline(always)]
pub unsafe fn reallocating(thread: &Thread, block: *mut u8) -> Old {
    // SAFETY: the caller guarantees a live block of the real allocator.
    let usable = unsafe { usable(thread, block) };
    let kept = is_candidate(block as usize) && record_end(thread, block, Kind::ReallocFree);
    Old { usable, kept }
}

/// Called when `realloc` returned null because there was no memory. The old block is still live.
pub fn not_reallocated(thread: &Thread, old: Old, block: *mut u8) {
    if old.kept {
        track(block);
        ring::heap(thread, Kind::ReallocFailed, block as u64, 0, 0, thread.clock());
    }
}

/// Called when `realloc` returned `to`, a block of so many bytes; `to` is null if `realloc` freed
/// the block.
///
/// # Safety
/// `to` is null, or a live block of the real allocator.
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
            // SAFETY: the caller guarantees a live block, and `to` isn't null.
            let usable = unsafe { usable(thread, to) };
            kept = add(thread, to, (bytes, usable), kind, sp, fp);
        }
    } else if !to.is_null() {
        // SAFETY: the caller guarantees a live block, and `to` isn't null.
        add_live(thread, unsafe { usable(thread, to) } as i64);
    }
    if old.kept && !kept {
        ring::heap(thread, Kind::ReallocAlloc, 0, 0, 0, thread.clock());
    }
}

/// Counts a block of so many usable bytes that was allocated while recording is off. Only live
/// bytes change, so that they are right when recording is on again.
#[inline(always)]
pub fn allocated_while_off(thread: &Thread, usable: usize) {
    add_live(thread, usable as i64);
}

/// Counts a block of so many usable bytes that is freed while recording is off. The free of a kept
/// block is recorded.
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
