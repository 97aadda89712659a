//! Buffers that CUPTI fills: one reserve of address space, opened piece by piece. CUPTI zeroes
//! them itself: an attribute would spare it that, for all clients of the process.
//!
//! Before CUDA 12.9 CUPTI crashes where a request is refused: it then gets a spare buffer, of
//! which the records are counted and dropped.

use super::cupti::Cupti;
use super::journal::{self, JournalEvent};
use super::wants;
use crate::sys::{self, flags};
use core::ffi::c_void;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// Bytes of a buffer: NVIDIA recommends 1 to 10 MiB. About five thousand kernels.
pub const BYTES: usize = 1 << 20;
/// Buffers at most: 128 MiB, touched as needed.
pub const MOST: usize = 128;
/// Spare ones behind them. The last is lent to all that come when no other is left.
const SPARE: usize = 64;
const ALL: usize = MOST + SPARE;

/// States of a buffer.
mod state {
    /// Its memory was never opened.
    pub const CLOSED: u32 = 0;
    /// Free to be lent.
    pub const FREE: u32 = 1;
    /// Lent to CUPTI.
    pub const LENT: u32 = 2;
    /// Full or flushed, and waiting for the flush thread.
    pub const DONE: u32 = 3;
    /// Being read by the flush thread.
    pub const READ: u32 = 4;
    /// Still CUPTI's when it was detached. It may come back yet, if another thread was about to
    /// give it back; it is lent again where no other is left.
    pub const LOST: u32 = 5;
}

static BASE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static STATES: [AtomicU32; ALL] = [const { AtomicU32::new(state::CLOSED) }; ALL];
static VALID: [AtomicUsize; ALL] = [const { AtomicUsize::new(0) }; ALL];
static ORDER: [AtomicU64; ALL] = [const { AtomicU64::new(0) }; ALL];
/// How often another client's wishes had changed when each was lent.
static LENT_AT: [AtomicU32; ALL] = [const { AtomicU32::new(0) }; ALL];
/// Whether each came back in a forced flush.
static FORCED: [AtomicBool; ALL] = [const { AtomicBool::new(false) }; ALL];
/// Forced flushes that run.
static FORCING: AtomicU32 = AtomicU32::new(0);
static TURNS: AtomicU64 = AtomicU64::new(1);
static MAY_REFUSE: AtomicBool = AtomicBool::new(true);
/// Buffers that CUPTI has.
pub static OUT: AtomicU32 = AtomicU32::new(0);
/// Requests for buffers since the process began.
pub static REQUESTS: AtomicU64 = AtomicU64::new(0);
/// Buffers that wait for the flush thread.
pub static WAITING: AtomicU32 = AtomicU32::new(0);
/// Requests that could not be met since the flush thread asked.
pub static REFUSED: AtomicU64 = AtomicU64::new(0);
/// Bytes of records that were dropped with spare buffers since the flush thread asked.
pub static DROPPED_BYTES: AtomicU64 = AtomicU64::new(0);
/// Futex: raised to wake the flush thread.
static WAKE: AtomicU32 = AtomicU32::new(0);

/// Runs a flush; a forced one also gives back buffers with records of work that has not ended.
pub fn during_flush<T>(flags: u32, flush: impl FnOnce() -> T) -> T {
    let forced = u32::from(flags != 0);
    FORCING.fetch_add(forced, AcqRel);
    let result = flush();
    FORCING.fetch_sub(forced, AcqRel);
    result
}

/// Wakes the flush thread.
pub fn wake() {
    WAKE.fetch_add(1, Release);
    sys::futex_wake(WAKE.as_ptr(), 1);
}

/// How often it was woken.
pub fn wakes() -> u32 {
    WAKE.load(Acquire)
}

/// Waits until it was woken once more than `seen`, at most `ns`.
pub fn wait(seen: u32, ns: u64) {
    sys::futex_wait(WAKE.as_ptr(), seen, ns);
}

/// Reserves the address space; false if that is refused.
pub fn prepare(cupti: &Cupti) -> bool {
    MAY_REFUSE.store(cupti.may_be_refused(), Relaxed);
    reserve()
}

fn reserve() -> bool {
    if !BASE.load(Acquire).is_null() {
        return true;
    }
    let how = flags::MAP_PRIVATE | flags::MAP_ANONYMOUS | flags::MAP_NORESERVE;
    let Some(base) = sys::map(ALL * BYTES, flags::PROT_NONE, how, -1) else { return false };
    // SAFETY: just mapped; contents stay as they are.
    unsafe { sys::advise(base, ALL * BYTES, flags::MADV_DONTDUMP) };
    BASE.store(base, Release);
    true
}

fn address(index: usize) -> *mut u8 {
    BASE.load(Relaxed).wrapping_add(index * BYTES)
}

fn index_of(buffer: *mut u8) -> usize {
    (buffer as usize).wrapping_sub(BASE.load(Relaxed) as usize) / BYTES
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
    journal::keep(JournalEvent::Requested, [found as u64, lent as u64, 0]);
    REQUESTS.fetch_add(1, Relaxed);
    if let Some(lent) = LENT_AT.get(index_of(found)) {
        lent.store(wants::turn(), Relaxed);
    }
    if !found.is_null() && OUT.fetch_add(1, AcqRel) == 0 {
        // The flush thread sleeps while there is nothing to flush.
        wake();
    }
}

fn lend() -> *mut u8 {
    let spare = if MAY_REFUSE.load(Relaxed) { MOST..MOST } else { MOST..ALL };
    let found = lend_one(0..MOST).or_else(|| lend_one(spare.clone()));
    found.unwrap_or(match spare.end {
        // Two owners write over each other what is dropped anyway.
        ALL => address(ALL - 1),
        _ => core::ptr::null_mut(),
    })
}

fn lend_one(of: Range<usize>) -> Option<*mut u8> {
    for from in [state::FREE, state::CLOSED, state::LOST] {
        for index in of.clone() {
            let Some(place) = STATES.get(index) else { break };
            if place.compare_exchange(from, state::LENT, AcqRel, Relaxed).is_err() {
                continue;
            }
            let at = address(index);
            // SAFETY: a buffer of ours, which becomes writable.
            let open = || unsafe { sys::protect(at, BYTES, flags::PROT_READ | flags::PROT_WRITE) };
            if from != state::CLOSED || open() {
                return Some(at);
            }
            place.store(state::CLOSED, Release);
            break;
        }
    }
    None
}

/// Whether a buffer is of this reserve; a client's own is not.
pub fn is_own(buffer: *mut u8) -> bool {
    index_of(buffer) < ALL
}

/// Whether a buffer may have several owners: the last one of those that are never refused.
pub fn is_shared(buffer: *mut u8) -> bool {
    index_of(buffer) == ALL - 1
}

/// How often another client's wishes had changed when a buffer was lent ([`wants::turn`]).
pub fn lent_at(buffer: *mut u8) -> u32 {
    LENT_AT.get(index_of(buffer)).map_or(0, |lent| lent.load(Relaxed))
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
    let index = index_of(buffer);
    let (Some(place), Some(len), Some(order)) =
        (STATES.get(index), VALID.get(index), ORDER.get(index))
    else {
        return;
    };
    journal::keep(JournalEvent::Completed, [buffer as u64, valid as u64, u64::from(stream)]);
    // Buffers that CUPTI had when it was detached count no more.
    if place.load(Acquire) != state::LOST {
        let _ = OUT.fetch_update(AcqRel, Relaxed, |out| out.checked_sub(1));
    }
    if index >= MOST {
        DROPPED_BYTES.fetch_add(valid as u64, Relaxed);
        place.store(state::FREE, Release);
        return;
    }
    len.store(valid.min(BYTES), Relaxed);
    if let Some(forced) = FORCED.get(index) {
        forced.store(FORCING.load(Acquire) > 0, Relaxed);
    }
    order.store(TURNS.fetch_add(1, Relaxed), Relaxed);
    place.store(state::DONE, Release);
    WAITING.fetch_add(1, Release);
    wake();
}

/// CUPTI is detached: what it has it never gives back. How many buffers these are.
pub fn abandon() -> u64 {
    let lost = STATES
        .iter()
        .filter(|place| place.compare_exchange(state::LENT, state::LOST, AcqRel, Relaxed).is_ok());
    let lost = lost.count() as u64;
    OUT.store(0, Release);
    lost
}

/// A buffer to read.
pub struct Done {
    index: usize,
    at: *mut u8,
    valid: usize,
}

impl Done {
    /// Address of its records: readable, and the flush thread's until it is recycled.
    pub fn at(&self) -> *mut u8 {
        self.at
    }

    /// Whether it came back in a forced flush: its last records may be of work that has not ended.
    pub fn is_forced(&self) -> bool {
        FORCED.get(self.index).is_some_and(|forced| forced.load(Relaxed))
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

/// A buffer may be lent again.
pub fn recycle(done: Done) {
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

    fn give(at: *mut u8, valid: usize) {
        // SAFETY: lent by `ask`.
        unsafe { complete(std::ptr::null_mut(), 0, at, BYTES, valid) };
    }

    // One test: the reserve is the process's.
    #[test]
    fn buffers_come_back_in_order_and_requests_beyond_the_last_one_are_counted() {
        assert!(reserve());
        let (one, two) = (ask(), ask());
        assert!(!one.is_null() && one != two);
        give(two, 300);
        give(one, 100);
        let first = next().unwrap();
        assert_eq!((first.at, first.valid), (two, 300));
        recycle(first);
        assert_eq!(ask(), two);
        recycle(next().unwrap());
        assert!(next().is_none());
        // Takes all of them: the rest of the reserve, and then none.
        let mut lent = 1;
        while !ask().is_null() {
            lent += 1;
        }
        assert_eq!(lent, MOST);
        assert_eq!(REFUSED.load(Relaxed), 1);
        // A CUPTI that crashes when it is refused gets spare ones, and never none.
        MAY_REFUSE.store(false, Relaxed);
        let spare: Vec<*mut u8> = (0..SPARE + 2).map(|_| ask()).collect();
        assert!(spare.iter().all(|at| !at.is_null()));
        assert_eq!(spare[SPARE - 1], spare[SPARE + 1]);
        assert_eq!(REFUSED.load(Relaxed), 1);
        spare.into_iter().for_each(|at| give(at, 10));
        assert!(next().is_none(), "what is in a spare buffer is dropped");
        assert_eq!(DROPPED_BYTES.load(Relaxed), 10 * (SPARE as u64 + 2));
        assert_eq!(OUT.load(Relaxed), MOST as u32);
        // Buffers that CUPTI has when it is detached may come back late, and count no more.
        let late = address(7);
        assert_eq!(abandon(), MOST as u64);
        MAY_REFUSE.store(true, Relaxed);
        let again = ask();
        assert!(!again.is_null() && again != late, "lent again, since no other is left");
        give(late, 500);
        assert_eq!(OUT.load(Relaxed), 1);
        let first = next().unwrap();
        assert_eq!((first.at, first.valid), (late, 500));
        recycle(first);
        assert_eq!(ask(), late);
        // However often it is detached.
        for _ in 0..3 {
            while !ask().is_null() {}
            assert_eq!((OUT.load(Relaxed), abandon()), (MOST as u32, MOST as u64));
        }
    }
}
