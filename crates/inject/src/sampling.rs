//! `--mem sampled`: exact counters in shared pages, and a Poisson sample of
//! events by bytes.
//!
//! An allocation of `s` bytes is kept with probability `1 - exp(-s / interval)`,
//! one of at least `interval` bytes always. Frees are recorded for kept blocks
//! only: a byte filter (one load for nearly every free), then an exact table.

use crate::state;
use crate::sys::{self, flags};
use crate::thread::Thread;
use crate::{arch, ring, stacks};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering::*};
use tprof_wire::record::Kind;

/// A thread adds its live bytes to the process's when they moved this far:
/// the peak is exact to within this many bytes per thread.
const FLUSH_BYTES: i64 = 64 << 10;

/// Filter bytes: how many kept blocks hash there (saturating at 255).
const FILTER: usize = 1 << 14;
/// Buckets of eight kept addresses.
const BUCKETS: usize = 1 << 13;

/// Filter and table, in memory that a forked child finds empty.
#[repr(C)]
struct Kept {
    filter: [AtomicU8; FILTER],
    table: [[AtomicUsize; 8]; BUCKETS],
}

static KEPT: AtomicPtr<Kept> = AtomicPtr::new(core::ptr::null_mut());

/// How usable sizes are read: not decided, by header, by call.
static USABLE: AtomicU32 = AtomicU32::new(0);
/// Agreements between header and call so far.
static AGREED: AtomicU32 = AtomicU32::new(0);
const BY_HEADER: u32 = 1;
const BY_CALL: u32 = 2;

/// Usable bytes of a block, not null.
#[inline(always)]
pub fn usable(block: *mut u8) -> usize {
    if USABLE.load(Relaxed) == BY_HEADER { header_size(block) } else { usable_by_call(block) }
}

/// glibc keeps a block's size before it: low bits are flags, bit 1 says that
/// the block is a mapping of its own. Only used after 64 agreements with
/// `malloc_usable_size`, and only where the real `malloc` is glibc's.
#[inline(always)]
fn header_size(block: *mut u8) -> usize {
    // SAFETY: glibc's malloc wrote a size there for every block it hands out.
    let size = unsafe { *block.sub(8).cast::<usize>() };
    if size & 2 == 0 { (size & !7) - 8 } else { (size & !7) - 16 }
}

#[cold]
#[inline(never)]
fn usable_by_call(block: *mut u8) -> usize {
    let real = state::USABLE_SIZE.load(Relaxed);
    if real == 0 {
        return 0;
    }
    // SAFETY: found under the name `malloc_usable_size`; `block` is live.
    let size = unsafe {
        let call: unsafe extern "C" fn(*mut u8) -> usize = core::mem::transmute(real);
        call(block)
    };
    if USABLE.load(Relaxed) != BY_CALL {
        if state::MALLOC_IS_GLIBC.load(Relaxed) == 0 || header_size(block) != size {
            USABLE.store(BY_CALL, Relaxed);
        } else if AGREED.fetch_add(1, Relaxed) >= 64 {
            USABLE.store(BY_HEADER, Relaxed);
        }
    }
    size
}

/// Counts an allocation and keeps it if the sample says so.
#[inline(always)]
pub fn allocated(
    thread: &mut Thread,
    block: *mut u8,
    bytes: usize,
    kind: Kind,
    sp: usize,
    fp: usize,
) {
    let slot = thread.slot();
    arch::add_local(&slot.allocations, 1);
    arch::add_local(&slot.allocated_bytes, bytes as u64);
    live(thread, usable(block) as i64);
    thread.countdown = thread.countdown.wrapping_sub(bytes as i64);
    if thread.countdown < 0 {
        keep(thread, block, bytes, kind, sp, fp);
    }
}

/// Moves this thread's live bytes, and the process's now and then.
#[inline(always)]
fn live(thread: &mut Thread, delta: i64) {
    // An addition and a load, not one exchange (2 ns): a handler in between
    // makes the sum seen here newer, which is as good.
    let mine = &thread.slot().live_delta;
    arch::add_local_signed(mine, delta);
    let now = mine.load(Relaxed);
    if (now + FLUSH_BYTES) as u64 > 2 * FLUSH_BYTES as u64 {
        flush(thread);
    }
}

#[cold]
#[inline(never)]
fn flush(thread: &mut Thread) {
    let Some(header) = state::header() else { return };
    let delta = thread.slot().live_delta.swap(0, Relaxed);
    let live = header.live_bytes.fetch_add(delta, Relaxed) + delta;
    if live > header.peak_bytes.load(Relaxed) && header.peak_bytes.fetch_max(live, Relaxed) < live {
        header.peak_clock.store(thread.clock(), Relaxed);
    }
}

#[cold]
#[inline(never)]
fn keep(thread: &mut Thread, block: *mut u8, bytes: usize, kind: Kind, sp: usize, fp: usize) {
    let interval = state::INTERVAL.load(Relaxed).max(1);
    if bytes as u64 >= interval {
        // Kept always, and outside the Poisson process of the smaller ones.
        thread.countdown = thread.countdown.wrapping_add(bytes as i64);
    } else {
        if thread.random == 0 {
            // This thread's first small allocation: nothing was drawn yet.
            thread.random = seed(thread);
            thread.draw_left = draw(thread, interval);
        }
        // At most `interval - 1` of a draw are in `countdown` at a time, so that
        // a block of `interval` bytes always comes here.
        while thread.countdown < 0 && thread.draw_left > 0 {
            let part = thread.draw_left.min(interval as i64 - 1).max(1);
            thread.countdown += part;
            thread.draw_left -= part;
        }
        if thread.countdown >= 0 {
            return;
        }
        // Draws are memoryless: beginning anew after a kept block is exact.
        thread.draw_left = draw(thread, interval);
        let part = thread.draw_left.min(interval as i64 - 1);
        thread.countdown = part;
        thread.draw_left -= part;
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
    let mut x = thread.clock() ^ (u64::from(thread.tid) << 32) ^ (thread as *const Thread as u64);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ x >> 31) | 1
}

/// Exponentially distributed bytes with mean `interval`. Every draw is
/// memoryless, so drawing anew after each kept allocation is exact.
fn draw(thread: &mut Thread, interval: u64) -> i64 {
    let mut x = thread.random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    thread.random = x;
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
#[inline(always)]
pub fn freeing(thread: &mut Thread, block: *mut u8) {
    let slot = thread.slot();
    arch::add_local(&slot.frees, 1);
    live(thread, -(usable(block) as i64));
    if is_candidate(block as usize) {
        forget_and_record(thread, block, Kind::Free, None);
    }
}

/// As [`freeing`], after the fact, for a block that `realloc` took.
#[inline(always)]
pub fn freed(thread: &mut Thread, block: *mut u8, usable: usize, kind: Kind, clock: u64) {
    let slot = thread.slot();
    arch::add_local(&slot.frees, 1);
    live(thread, -(usable as i64));
    if is_candidate(block as usize) {
        forget_and_record(thread, block, kind, Some(clock));
    }
}

#[inline(always)]
fn hash(address: usize) -> usize {
    (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

#[inline(always)]
fn is_candidate(address: usize) -> bool {
    let kept = KEPT.load(Relaxed);
    // SAFETY: a non-null pointer is a mapped `Kept`, for good.
    !kept.is_null() && unsafe { (*kept).filter[hash(address) & (FILTER - 1)].load(Relaxed) != 0 }
}

#[cold]
#[inline(never)]
fn forget_and_record(thread: &mut Thread, block: *mut u8, kind: Kind, clock: Option<u64>) {
    if forget(block as usize) {
        let clock = clock.unwrap_or_else(|| thread.clock());
        ring::heap(thread, kind, block as u64, 0, 0, clock);
    }
}

fn table() -> Option<&'static Kept> {
    let mut kept = KEPT.load(Acquire);
    if kept.is_null() {
        let new = sys::map_anonymous(size_of::<Kept>())?;
        // Refused by kernels before 4.14: a child then records frees of its
        // parent's blocks, which the collector does not know and ignores.
        sys::advise(new, size_of::<Kept>(), flags::MADV_WIPEONFORK);
        match KEPT.compare_exchange(core::ptr::null_mut(), new.cast(), AcqRel, Acquire) {
            Ok(_) => kept = new.cast(),
            Err(other) => {
                // SAFETY: lost the race; nobody saw this mapping.
                unsafe { sys::unmap(new, size_of::<Kept>()) };
                kept = other;
            }
        }
    }
    // SAFETY: mapped, zeroed, for good.
    Some(unsafe { &*kept })
}

fn remember(address: usize) -> bool {
    let Some(kept) = table() else { return false };
    let h = hash(address);
    let bucket = &kept.table[h & (BUCKETS - 1)];
    for place in bucket {
        if place.compare_exchange(0, address, AcqRel, Relaxed).is_ok() {
            let count = &kept.filter[h & (FILTER - 1)];
            let _ = count.fetch_update(AcqRel, Relaxed, |n| (n < 255).then_some(n + 1));
            return true;
        }
    }
    false
}

fn forget(address: usize) -> bool {
    let Some(kept) = table() else { return false };
    let h = hash(address);
    for place in &kept.table[h & (BUCKETS - 1)] {
        if place.load(Relaxed) == address
            && place.compare_exchange(address, 0, AcqRel, Relaxed).is_ok()
        {
            let count = &kept.filter[h & (FILTER - 1)];
            // A count that reached 255 is no longer known: it stays.
            let _ = count.fetch_update(AcqRel, Relaxed, |n| (n < 255).then(|| n.saturating_sub(1)));
            return true;
        }
    }
    false
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

    #[test]
    fn kept_addresses_are_found_once() {
        for i in 1..=5000usize {
            assert!(remember(i * 64));
        }
        for i in 1..=5000usize {
            assert!(is_candidate(i * 64));
            assert!(forget(i * 64));
            assert!(!forget(i * 64));
        }
    }
}
