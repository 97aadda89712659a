//! Buffers that CUPTI fills: one reserve of address space, opened piece by
//! piece, zeroed by the flush thread before a buffer is lent again (CUPTI would
//! do it on the job's own threads).

use super::journal::{self, What};
use crate::sys::{self, flags};
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// Bytes of a buffer: about a thousand kernels, so that few are ever held back
/// by one that still runs.
pub const BYTES: usize = 256 << 10;
/// Buffers at most: 128 MiB, touched as needed.
pub const MOST: usize = 512;

/// Where a buffer is.
mod state {
    /// Never opened.
    pub const CLOSED: u32 = 0;
    /// Zeroed, and without an owner.
    pub const FREE: u32 = 1;
    /// CUPTI's.
    pub const LENT: u32 = 2;
    /// Full, or flushed; the flush thread's.
    pub const DONE: u32 = 3;
    /// Being read.
    pub const READ: u32 = 4;
}

static BASE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static STATES: [AtomicU32; MOST] = [const { AtomicU32::new(state::CLOSED) }; MOST];
static VALID: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];
static ORDER: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
static TURNS: AtomicU64 = AtomicU64::new(1);
/// Buffers that wait for the flush thread.
pub static WAITING: AtomicU32 = AtomicU32::new(0);
/// Requests that could not be met since the flush thread asked.
pub static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Reserves the address space; false if that is refused.
pub fn prepare() -> bool {
    if !BASE.load(Acquire).is_null() {
        return true;
    }
    let how = flags::MAP_PRIVATE | flags::MAP_ANONYMOUS | flags::MAP_NORESERVE;
    let Some(base) = sys::map(MOST * BYTES, flags::PROT_NONE, how, -1) else { return false };
    // SAFETY: just mapped; contents stay as they are.
    unsafe { sys::advise(base, MOST * BYTES, flags::MADV_DONTDUMP) };
    BASE.store(base, Release);
    true
}

fn address(index: usize) -> *mut u8 {
    BASE.load(Relaxed).wrapping_add(index * BYTES)
}

/// CUPTI wants a buffer.
///
/// # Safety
/// The pointers are CUPTI's places for the answers.
pub unsafe extern "C" fn request(buffer: *mut *mut u8, bytes: *mut usize, most: *mut usize) {
    let found = lend();
    if found.is_null() {
        REFUSED.fetch_add(1, Relaxed);
    }
    let lent = if found.is_null() { 0 } else { BYTES };
    // SAFETY: the caller's premise.
    unsafe {
        *buffer = found;
        *bytes = lent;
        *most = 0;
    }
    journal::keep(What::Requested, [found as u64, lent as u64, 0]);
}

fn lend() -> *mut u8 {
    let take = |index: usize, from: u32| {
        let place = STATES.get(index)?;
        place.compare_exchange(from, state::LENT, AcqRel, Relaxed).ok().map(|_| address(index))
    };
    for index in 0..MOST {
        if let Some(at) = take(index, state::FREE) {
            return at;
        }
    }
    for index in 0..MOST {
        if let Some(at) = take(index, state::CLOSED) {
            // SAFETY: a buffer of ours, which becomes writable.
            if unsafe { sys::protect(at, BYTES, flags::PROT_READ | flags::PROT_WRITE) } {
                return at;
            }
            if let Some(place) = STATES.get(index) {
                place.store(state::CLOSED, Release);
            }
            break;
        }
    }
    core::ptr::null_mut()
}

/// CUPTI gives a buffer back, on any thread: it is only marked.
///
/// # Safety
/// `buffer` was lent by [`request`].
pub unsafe extern "C" fn complete(
    _context: *mut c_void,
    stream: u32,
    buffer: *mut u8,
    _bytes: usize,
    valid: usize,
) {
    let index = (buffer as usize).wrapping_sub(BASE.load(Relaxed) as usize) / BYTES;
    let (Some(place), Some(len), Some(order)) =
        (STATES.get(index), VALID.get(index), ORDER.get(index))
    else {
        return;
    };
    journal::keep(What::Completed, [buffer as u64, valid as u64, u64::from(stream)]);
    len.store(valid.min(BYTES), Relaxed);
    order.store(TURNS.fetch_add(1, Relaxed), Relaxed);
    place.store(state::DONE, Release);
    WAITING.fetch_add(1, Release);
}

/// A buffer to read.
pub struct Done {
    index: usize,
    at: *mut u8,
    valid: usize,
}

impl Done {
    /// Its records: open, and the flush thread's until it is recycled.
    pub fn at(&self) -> *mut u8 {
        self.at
    }

    /// Bytes of them.
    pub fn valid(&self) -> usize {
        self.valid
    }
}

/// The buffer that was completed first.
pub fn next() -> Option<Done> {
    let waiting =
        |index: &usize| STATES.get(*index).is_some_and(|s| s.load(Acquire) == state::DONE);
    let order = |index: &usize| ORDER.get(*index).map_or(u64::MAX, |o| o.load(Relaxed));
    let index = (0..MOST).filter(waiting).min_by_key(order)?;
    let place = STATES.get(index)?;
    place.compare_exchange(state::DONE, state::READ, AcqRel, Relaxed).ok()?;
    WAITING.fetch_sub(1, Relaxed);
    let valid = VALID.get(index).map_or(0, |len| len.load(Relaxed));
    Some(Done { index, at: address(index), valid })
}

/// Zeroes a buffer, so that it may be lent again.
pub fn recycle(done: Done) {
    // SAFETY: the buffer is open, and without another owner between `next` and here.
    unsafe { core::ptr::write_bytes(done.at, 0, done.valid) };
    if let Some(place) = STATES.get(done.index) {
        place.store(state::FREE, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> *mut u8 {
        let (mut at, mut bytes, mut most) = (std::ptr::null_mut(), 0, 9);
        // SAFETY: places of this test.
        unsafe { request(&raw mut at, &raw mut bytes, &raw mut most) };
        assert_eq!((bytes, most), (if at.is_null() { 0 } else { BYTES }, 0));
        at
    }

    #[test]
    fn buffers_come_back_in_order_and_are_lent_again_zeroed() {
        assert!(prepare());
        let (one, two) = (ask(), ask());
        assert!(!one.is_null() && one != two);
        for (at, valid) in [(two, 300), (one, 100)] {
            // SAFETY: lent above, BYTES long.
            unsafe {
                std::ptr::write_bytes(at, 7, valid);
                complete(std::ptr::null_mut(), 0, at, BYTES, valid);
            }
        }
        let first = next().unwrap();
        assert_eq!((first.at, first.valid), (two, 300));
        recycle(first);
        let again = ask();
        assert_eq!(again, two);
        // SAFETY: lent, and zeroed as far as it was used.
        assert!(unsafe { std::slice::from_raw_parts(again, 400) }.iter().all(|byte| *byte == 0));
        recycle(next().unwrap());
        assert!(next().is_none());
        // All of them: the rest of the reserve, and then none.
        let mut lent = 1;
        while !ask().is_null() {
            lent += 1;
        }
        assert_eq!(lent, MOST);
        assert_eq!(REFUSED.load(Relaxed), 1);
    }
}
