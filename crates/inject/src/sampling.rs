//! `--mem sampled`: exact counters in shared pages, and a Poisson sample of
//! events by bytes.
//!
//! An allocation of `s` bytes is kept with probability `1 - exp(-s / interval)`,
//! one of at least `interval` bytes always. Frees are recorded for kept blocks
//! only, see [`crate::kept`].

use crate::block::Thread;
use crate::kept::{forget, is_candidate, remember};
use crate::{arch, ring, stacks, state};
use core::sync::atomic::{AtomicU32, Ordering::*};
use tprof_wire::record::Kind;

/// A thread adds its live bytes to the process's when they moved this far:
/// the peak is exact to within this many bytes per thread.
const FLUSH_BYTES: i64 = 64 << 10;

/// How usable sizes are read: not decided, by header, by call.
static USABLE: AtomicU32 = AtomicU32::new(0);
/// Agreements between header and call so far.
static AGREED: AtomicU32 = AtomicU32::new(0);
const BY_HEADER: u32 = 1;
const BY_CALL: u32 = 2;

/// Usable bytes of a block.
///
/// # Safety
/// A live block of the real allocator, not null.
#[inline(always)]
pub unsafe fn usable(block: *mut u8) -> usize {
    if USABLE.load(Relaxed) == BY_HEADER {
        // SAFETY: the caller's premise; the header has agreed with the allocator 64 times.
        unsafe { header_size(block) }
    } else {
        // SAFETY: the caller's premise.
        unsafe { usable_by_call(block) }
    }
}

/// glibc keeps a block's size before it: low bits are flags, bit 1 means that
/// the block is a mapping of its own. Only used after 64 agreements with
/// `malloc_usable_size`, and only where the real `malloc` is glibc's.
///
/// # Safety
/// A live block of glibc's allocator.
#[inline(always)]
unsafe fn header_size(block: *mut u8) -> usize {
    // SAFETY: the caller's premise: glibc's malloc wrote a size there.
    let size = unsafe { *block.sub(8).cast::<usize>() };
    if size & 2 == 0 { (size & !7) - 8 } else { (size & !7) - 16 }
}

/// # Safety
/// As [`usable`].
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
        let agrees = || size == unsafe { header_size(block) };
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
/// As [`usable`].
#[inline(always)]
pub unsafe fn allocated(
    thread: &Thread,
    block: *mut u8,
    bytes: usize,
    kind: Kind,
    sp: usize,
    fp: usize,
) {
    // SAFETY: the caller's premise.
    let usable = unsafe { usable(block) };
    count(thread, bytes, usable);
    if thread.countdown.get() < 0 {
        keep(thread, block, bytes, kind, sp, fp);
    }
}

/// As [`allocated`], of a block of any allocator: of bytes asked for, and usable ones.
#[inline(always)]
pub fn counted(thread: &Thread, block: *mut u8, bytes: (usize, usize), sp: usize, fp: usize) {
    count(thread, bytes.0, bytes.1);
    if thread.countdown.get() < 0 {
        keep(thread, block, bytes.0, Kind::Alloc, sp, fp);
    }
}

#[inline(always)]
fn count(thread: &Thread, bytes: usize, usable: usize) {
    let slot = thread.slot();
    arch::add_local(&slot.allocations, 1);
    arch::add_local(&slot.allocated_bytes, bytes as u64);
    live(thread, usable as i64);
    thread.countdown.set(thread.countdown.get().wrapping_sub(bytes as i64));
}

/// Moves this thread's live bytes, and the process's now and then.
#[inline(always)]
fn live(thread: &Thread, delta: i64) {
    // An addition and a load, not one exchange (2 ns): a handler in between
    // makes the sum read here newer, which is as good.
    let mine = &thread.slot().live_delta;
    arch::add_local_signed(mine, delta);
    let now = mine.load(Relaxed);
    if (now + FLUSH_BYTES) as u64 > 2 * FLUSH_BYTES as u64 {
        flush(thread);
    }
}

#[cold]
#[inline(never)]
fn flush(thread: &Thread) {
    let Some(header) = state::header() else { return };
    let delta = thread.slot().live_delta.swap(0, Relaxed);
    let live = header.live_bytes.fetch_add(delta, Relaxed) + delta;
    if live > header.peak_bytes.load(Relaxed) && header.peak_bytes.fetch_max(live, Relaxed) < live {
        header.peak_clock.store(thread.clock(), Relaxed);
    }
}

#[cold]
#[inline(never)]
fn keep(thread: &Thread, block: *mut u8, bytes: usize, kind: Kind, sp: usize, fp: usize) {
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
            return;
        }
        // Draws are memoryless: beginning anew after a kept block is exact.
        thread.draw_left.set(draw(thread, interval));
        let part = thread.draw_left.get().min(interval as i64 - 1);
        thread.countdown.set(part);
        thread.draw_left.set(thread.draw_left.get() - part);
    }
    if !remember(block as usize)
        && let Some(header) = state::header()
    {
        header.samples_untracked.fetch_add(1, Relaxed);
    }
    let stack = stacks::stack(thread, sp, fp);
    let clock = thread.clock();
    ring::heap(thread, kind, block as u64, bytes as u64, stack, clock);
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
/// As [`usable`].
#[inline(always)]
pub unsafe fn freeing(thread: &Thread, block: *mut u8) {
    let slot = thread.slot();
    arch::add_local(&slot.frees, 1);
    // SAFETY: the caller's premise.
    live(thread, -(unsafe { usable(block) } as i64));
    if is_candidate(block as usize) {
        forget_and_record(thread, block, Kind::Free, None);
    }
}

/// As [`freeing`], after the fact, for a block that `realloc` took.
#[inline(always)]
pub fn freed(thread: &Thread, block: *mut u8, usable: usize, kind: Kind, clock: u64) {
    let slot = thread.slot();
    arch::add_local(&slot.frees, 1);
    live(thread, -(usable as i64));
    if is_candidate(block as usize) {
        forget_and_record(thread, block, kind, Some(clock));
    }
}

#[cold]
#[inline(never)]
fn forget_and_record(thread: &Thread, block: *mut u8, kind: Kind, clock: Option<u64>) {
    if forget(block as usize) {
        let clock = clock.unwrap_or_else(|| thread.clock());
        ring::heap(thread, kind, block as u64, 0, 0, clock);
    }
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
