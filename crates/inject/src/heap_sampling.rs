//! `--mem sampled`: counts every allocation exactly in shared pages, and records a Poisson sample
//! of the allocations, by bytes.
//!
//! An allocation of `s` bytes is sampled with probability `1 - exp(-s / interval)`, and always if
//! it has at least `interval` bytes. A free is recorded only if its block was sampled, see
//! [`crate::sampled_blocks`].

use crate::block::Thread;
use crate::sampled_blocks::{insert, is_candidate, remove};
use crate::{arch, ring, stacks, state};
use tprof_wire::record::Kind;
use tprof_wire::region::mem_mode;
use tprof_wire::sync::{AtomicU32, Ordering::*};

/// The most bytes that a thread may allocate, or free, before it calls [`settle`]. So the total and
/// its peak are exact to within this many bytes per thread.
const ROOM: i64 = 64 << 10;

/// How to read a block's usable size: 0 while undecided, then [`BY_HEADER`] or [`BY_CALL`].
static USABLE: AtomicU32 = AtomicU32::new(0);
/// Number of blocks for which glibc's header and `malloc_usable_size` agreed on the size.
static AGREED: AtomicU32 = AtomicU32::new(0);
const BY_HEADER: u32 = 1;
const BY_CALL: u32 = 2;

/// The usable bytes of a block. Once sizes come from glibc's headers, this also lets the thread use
/// [`crate::heap_fast_path`], which reads headers only.
///
/// # Safety
/// `block` is a live block of the real allocator, and not null.
#[inline(always)]
pub unsafe fn usable(thread: &Thread, block: *mut u8) -> usize {
    if USABLE.load(Relaxed) == BY_HEADER {
        thread.enable_fast_path();
        // SAFETY: the caller guarantees a live block. `USABLE` is `BY_HEADER` only if the allocator
        // is glibc's, and headers agreed with `malloc_usable_size` for 64 blocks.
        let size = unsafe { header(block) };
        by_header(size)
    } else {
        // SAFETY: the caller guarantees a live block of the real allocator.
        unsafe { usable_by_call(block) }
    }
}

/// The word that glibc stores before a block: its size, with flags in the low bits. Callers use the
/// value only if the real `malloc` is glibc's and the word agreed with `malloc_usable_size` for 64
/// blocks.
///
/// # Safety
/// `block` is a live block of glibc's allocator.
#[inline(always)]
pub unsafe fn header(block: *mut u8) -> usize {
    // SAFETY: the caller guarantees a block of glibc, whose `malloc` stores a size there.
    unsafe { *block.sub(8).cast::<usize>() }
}

/// Whether a block whose header is this word is a mapping of its own.
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
        // SAFETY: the caller guarantees a live block, and `agrees` is called only if the allocator
        // is glibc's.
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

/// Like [`allocated`], for a block of any allocator. `bytes` holds the bytes that the program
/// requested and the usable bytes.
#[inline(always)]
pub fn counted(thread: &Thread, block: *mut u8, bytes: (usize, usize), sp: usize, fp: usize) {
    add(thread, block, bytes, Kind::Alloc, sp, fp);
}

/// Counts a block, and records it if it is sampled. Returns whether it was sampled.
///
/// The clock of a sampled block's record is read before the block's bytes are added to the total.
/// So a peak that the block causes is never earlier than the block's record.
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

/// Changes this thread's live bytes.
#[inline(always)]
pub fn add_live(thread: &Thread, delta: i64) {
    let slot = thread.slot();
    let room = if delta < 0 { &slot.room_to_free } else { &slot.room_to_allocate };
    // A subtraction and a load are 2 ns faster than one exchange. A signal handler that runs between
    // the two can only make the loaded value newer, which does no harm.
    arch::add_local_signed(room, -delta.abs());
    if room.load(Relaxed) < 0 {
        settle(thread);
    }
}

/// The live bytes of the process, exact to within `ROOM` for each other thread; `None` if
/// they are not counted.
pub fn live_bytes(thread: &Thread) -> Option<u64> {
    if state::MEM_MODE.load(Relaxed) != mem_mode::SAMPLED {
        return None;
    }
    let own = thread.slot().live_delta();
    let header = state::header().filter(|header| header.is_balanced())?;
    let live = header.live_bytes.load(Relaxed).saturating_add(own);
    // The sum may be negative: this thread may have freed a block whose allocation another thread
    // has not added to the total yet.
    Some(u64::try_from(live).unwrap_or(0))
}

/// Called when a thread has used up the room to allocate or to free. If its live bytes have changed
/// much since the last time, adds the change to the process's total. Makes room again.
///
/// Rooms are changed by additions only, so that nothing is lost if a signal handler allocates
/// meanwhile.
#[cold]
#[inline(never)]
pub fn settle(thread: &Thread) {
    let slot = thread.slot();
    let (to_allocate, to_free) =
        (slot.room_to_allocate.load(Relaxed), slot.room_to_free.load(Relaxed));
    let delta = to_free - to_allocate;
    if delta.abs() < ROOM / 2 {
        // At least half of the room is left on both sides.
        let more = ROOM - to_allocate.max(to_free);
        arch::add_local_signed(&slot.room_to_allocate, more);
        arch::add_local_signed(&slot.room_to_free, more);
        return;
    }
    arch::add_local_signed(&slot.room_to_allocate, ROOM - to_allocate);
    arch::add_local_signed(&slot.room_to_free, ROOM - to_free);
    add_to_total(thread, delta);
}

/// Adds bytes to the process's total, and updates the peak.
fn add_to_total(thread: &Thread, delta: i64) {
    let Some(header) = state::header() else { return };
    let mut before = header.live_bytes.load(Acquire);
    loop {
        // The clock is read while the total is known to be `before`. So a block in this peak has an
        // earlier time than the peak, and another thread's free after the peak has a later one.
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

/// Decides whether a block is sampled, and if so records it. Called once the countdown is below
/// zero. Returns whether the block was sampled.
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
        // Large blocks are always sampled and don't count towards the Poisson process of the
        // smaller ones, so their bytes go back to the countdown.
        thread.countdown.set(thread.countdown.get().wrapping_add(bytes as i64));
    } else {
        if thread.random.get() == 0 {
            // This is the thread's first small allocation: it has no random draw yet.
            thread.random.set(seed(thread));
            thread.draw_left.set(draw(thread, interval));
        }
        // At most `interval - 1` bytes of a draw are in `countdown` at a time, so that an
        // allocation of `interval` bytes always makes it negative and gets here.
        while thread.countdown.get() < 0 && thread.draw_left.get() > 0 {
            let part = thread.draw_left.get().min(interval as i64 - 1).max(1);
            thread.countdown.set(thread.countdown.get() + part);
            thread.draw_left.set(thread.draw_left.get() - part);
        }
        if thread.countdown.get() >= 0 {
            return false;
        }
        // The exponential distribution is memoryless, so a new draw after each sampled block is
        // exact.
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

/// Adds a sampled block to the set, so that its free is recorded.
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

/// Draws a number of bytes from the exponential distribution with mean `interval`.
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

/// Natural logarithm of a value in (0, 1), to about 1e-9. `core` doesn't have one.
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

/// Counts a free, and records it if the block was sampled.
///
/// # Safety
/// The same premises as [`usable`].
#[inline(always)]
pub unsafe fn freeing(thread: &Thread, block: *mut u8) {
    // SAFETY: the caller guarantees a live block of the real allocator.
    freed(thread, block, unsafe { usable(thread, block) });
}

/// Like [`freeing`], for a block of any allocator. `usable` is its number of usable bytes.
#[inline(always)]
pub fn freed(thread: &Thread, block: *mut u8, usable: usize) {
    arch::add_local(&thread.slot().frees, 1);
    gone(thread, block, usable);
}

/// Subtracts a block's bytes from live bytes, and records its free if it was sampled. The clock of
/// that record is read after the subtraction, so a peak that includes the block is never later than
/// the record.
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

/// The facts about a block that [`reallocating`] reads before `realloc` runs.
#[derive(Clone, Copy)]
pub struct Old {
    usable: usize,
    /// Whether the block was sampled. Then `ReallocFree` was recorded, and the outcome must be
    /// recorded too.
    kept: bool,
}

/// Reads the facts about a block that is about to be reallocated. The block counts as live until
/// `realloc` returns, however long that takes, since its bytes are in use meanwhile.
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

/// Undoes [`reallocating`] after `realloc` returned null for lack of memory, since the old block is
/// still live.
pub fn not_reallocated(thread: &Thread, old: Old, block: *mut u8) {
    if old.kept {
        track(block);
        ring::heap(thread, Kind::ReallocFailed, block as u64, 0, 0, thread.clock());
    }
}

/// Counts the result of a `realloc`, and records it if the old or the new block is sampled. `to`
/// has `bytes` requested bytes, or is null if `realloc` freed the block.
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

/// Counts an allocation of `usable` bytes while recording is off. Only live bytes change, so that
/// they are right when recording is on again.
#[inline(always)]
pub fn allocated_while_off(thread: &Thread, usable: usize) {
    add_live(thread, usable as i64);
}

/// Counts a free of `usable` bytes while recording is off. The free is recorded if the block was
/// sampled, so that the collector doesn't take the block for live.
#[inline(always)]
pub fn freed_while_off(thread: &Thread, block: *mut u8, usable: usize) {
    gone(thread, block, usable);
}

#[cfg(test)]
mod tests;
