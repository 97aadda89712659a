//! Manages the buffers that the agent lends to CUPTI. They are parts of one reserve of address
//! space, which becomes accessible buffer by buffer. CUPTI zeroes each buffer itself. A CUPTI
//! attribute would save that, but it would apply to all clients of the process.
//!
//! Before CUDA 12.9, CUPTI crashes if a request for a buffer is refused. Such a CUPTI gets spare
//! buffers instead. Records in spare buffers are dropped, and their bytes counted.

use super::cupti::Cupti;
use super::journal::{self, JournalEvent};
use super::wants;
use core::ffi::c_void;
use core::ops::Range;
use tprof_inject::sys::{self, flags};
use tprof_wire::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// Bytes of a buffer, enough for about five thousand kernels. NVIDIA recommends 1 to 10 MiB.
pub const BYTES: usize = 1 << 20;
/// Maximum number of normal buffers: 128 MiB of address space, of which only touched pages use
/// memory.
pub const MOST: usize = 128;
/// Number of spare buffers after the normal ones. When no other buffer is left, every further
/// request gets the last spare one.
const SPARE: usize = 64;
const ALL: usize = MOST + SPARE;
/// Size of the smallest pages.
const PAGE: usize = 4096;

/// States of a buffer.
mod state {
    /// The buffer's memory was never made accessible.
    pub const CLOSED: u32 = 0;
    /// The buffer can be lent.
    pub const FREE: u32 = 1;
    /// CUPTI has the buffer.
    pub const LENT: u32 = 2;
    /// The buffer came back full or flushed, and waits for the flush thread.
    pub const DONE: u32 = 3;
    /// The flush thread is reading the buffer, or making it ready.
    pub const READ: u32 = 4;
    /// CUPTI still had the buffer when it was detached. The buffer may come back if another thread
    /// was about to return it. It is lent again only if no other buffer is left.
    pub const LOST: u32 = 5;
}

static BASE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static STATES: [AtomicU32; ALL] = [const { AtomicU32::new(state::CLOSED) }; ALL];
static VALID: [AtomicUsize; ALL] = [const { AtomicUsize::new(0) }; ALL];
static ORDER: [AtomicU64; ALL] = [const { AtomicU64::new(0) }; ALL];
/// For each buffer, the value of [`wants::turn`] when it was last lent.
static LENT_AT: [AtomicU32; ALL] = [const { AtomicU32::new(0) }; ALL];
/// For each buffer, whether it came back in a forced flush.
static FORCED: [AtomicBool; ALL] = [const { AtomicBool::new(false) }; ALL];
/// Number of forced flushes that are running.
static FORCING: AtomicU32 = AtomicU32::new(0);
static TURNS: AtomicU64 = AtomicU64::new(1);
static MAY_REFUSE: AtomicBool = AtomicBool::new(true);
/// Number of buffers that CUPTI has now.
pub static OUT: AtomicU32 = AtomicU32::new(0);
/// Number of requests for buffers since the process began.
pub static REQUESTS: AtomicU64 = AtomicU64::new(0);
/// Number of buffers that wait for the flush thread.
pub static WAITING: AtomicU32 = AtomicU32::new(0);
/// Number of requests that were refused since the flush thread last read this.
pub static REFUSED: AtomicU64 = AtomicU64::new(0);
/// Bytes of records that were dropped with spare buffers since the flush thread last read this.
pub static DROPPED_BYTES: AtomicU64 = AtomicU64::new(0);
/// Futex on which the flush thread sleeps. Threads increment it to wake the flush thread.
static WAKE: AtomicU32 = AtomicU32::new(0);

/// Runs a flush. A forced flush also returns buffers with records of work that has not ended. So
/// buffers that come back during it are marked as such.
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

/// Number of times that the flush thread was woken, to pass to [`wait`].
pub fn wakes() -> u32 {
    WAKE.load(Acquire)
}

/// Waits for at most `ns`, or until the flush thread is woken after [`wakes`] returned `seen`.
pub fn wait(seen: u32, ns: u64) {
    sys::futex_wait(WAKE.as_ptr(), seen, ns);
}

/// Reserves the address space. Returns false if the kernel refuses it.
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
    // SAFETY: the reserve was just mapped, and the advice doesn't change its contents.
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

/// Called when CUPTI requests a buffer.
///
/// # Safety
/// The pointers are valid for writes, as CUPTI passes them to this callback.
pub unsafe extern "C" fn request(buffer: *mut *mut u8, bytes: *mut usize, most: *mut usize) {
    let found = lend();
    if found.is_null() {
        REFUSED.fetch_add(1, Relaxed);
    }
    let lent = if found.is_null() { 0 } else { BYTES };
    // SAFETY: the caller guarantees that the three pointers are valid for writes.
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
        // There was nothing to flush, so the flush thread is sleeping.
        wake();
    }
}

fn lend() -> *mut u8 {
    let spare = if MAY_REFUSE.load(Relaxed) { MOST..MOST } else { MOST..ALL };
    let found = lend_one(0..MOST).or_else(|| lend_one(spare.clone()));
    found.unwrap_or(match spare.end {
        // Several borrowers overwrite each other's records, but records in spare buffers are
        // dropped anyway.
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
            // SAFETY: the range is one buffer of the reserve, and the call only makes it
            // accessible.
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

/// Whether a buffer is part of this reserve. Otherwise it belongs to another client.
pub fn is_own(buffer: *mut u8) -> bool {
    index_of(buffer) < ALL
}

/// Whether CUPTI may have a buffer several times. Only the last spare one is lent again and again.
pub fn is_shared(buffer: *mut u8) -> bool {
    index_of(buffer) == ALL - 1
}

/// The value of [`wants::turn`] when a buffer was lent.
pub fn lent_at(buffer: *mut u8) -> u32 {
    LENT_AT.get(index_of(buffer)).map_or(0, |lent| lent.load(Relaxed))
}

/// Called when CUPTI returns a buffer, on any thread. The buffer is only marked; the flush thread
/// reads it.
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
    // [`abandon`] has already subtracted the buffers that CUPTI had when it was detached.
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

/// Called when CUPTI was detached and won't return the buffers that it has. Returns their number.
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
    /// Address of the buffer's records. They can be read, and nothing else uses the buffer until
    /// the flush thread recycles it.
    pub fn at(&self) -> *mut u8 {
        self.at
    }

    /// Whether the buffer came back in a forced flush, so that its last records may be of work that
    /// has not ended.
    pub fn is_forced(&self) -> bool {
        FORCED.get(self.index).is_some_and(|forced| forced.load(Relaxed))
    }

    /// Number of valid bytes.
    pub fn valid(&self) -> usize {
        self.valid
    }
}

/// Returns the buffer that was completed first, for the flush thread to read.
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

/// Makes one buffer ready to be lent, unless one is ready or CUPTI has none. The flush thread makes
/// it accessible and touches its pages. Otherwise a thread of the job would wait for 256 page
/// faults, a third of a millisecond, while CUPTI zeroes the buffer.
pub fn keep_ready() {
    let own = || STATES.iter().take(MOST).enumerate();
    let is = |of: u32| move |place: &AtomicU32| place.load(Acquire) == of;
    if OUT.load(Acquire) == 0 || own().any(|(_, place)| is(state::FREE)(place)) {
        return;
    }
    let Some((index, place)) = own().find(|(_, place)| is(state::CLOSED)(place)) else { return };
    if place.compare_exchange(state::CLOSED, state::READ, AcqRel, Relaxed).is_err() {
        return;
    }
    let at = address(index);
    // SAFETY: the range is one buffer of the reserve, and the call only makes it accessible. Its
    // state `READ` reserves it for this thread.
    let is_open = unsafe { sys::protect(at, BYTES, flags::PROT_READ | flags::PROT_WRITE) };
    if is_open {
        for page in (0..BYTES).step_by(PAGE) {
            // SAFETY: `page` is in that buffer, which is accessible now and reserved for this
            // thread.
            unsafe { at.add(page).write_volatile(0) };
        }
    }
    place.store(if is_open { state::FREE } else { state::CLOSED }, Release);
}

/// Makes a buffer that was read available to be lent again.
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
        // SAFETY: the pointers are to locals of this test.
        unsafe { request(&raw mut at, &raw mut bytes, &raw mut most) };
        assert_eq!((bytes, most), (if at.is_null() { 0 } else { BYTES }, 0));
        at
    }

    unsafe extern "C" {
        fn mincore(at: *mut c_void, bytes: usize, found: *mut u8) -> i32;
    }

    /// Whether a page is backed by memory.
    fn is_resident(at: *mut u8) -> bool {
        let mut found = 0u8;
        // SAFETY: the range is a page of the reserve, and the answer for one page is one byte.
        let result = unsafe { mincore(at.cast(), PAGE, &raw mut found) };
        result == 0 && found & 1 != 0
    }

    fn hand_in(at: *mut u8, valid: usize) {
        // SAFETY: `ask` got this buffer from `request`.
        unsafe { complete(std::ptr::null_mut(), 0, at, BYTES, valid) };
    }

    // This is a single test, since the process has only one reserve.
    #[test]
    fn buffers_return_in_order_and_requests_beyond_the_last_are_counted() {
        assert!(reserve());
        let (one, two) = (ask(), ask());
        assert!(!one.is_null() && one != two);
        hand_in(two, 300);
        hand_in(one, 100);
        let first = next().unwrap();
        assert_eq!((first.at, first.valid), (two, 300));
        recycle(first);
        assert_eq!(ask(), two);
        recycle(next().unwrap());
        assert!(next().is_none());
        // The next buffer, which has no memory yet, is made ready before it is requested.
        assert_eq!(ask(), one);
        assert!(!is_resident(address(2)));
        keep_ready();
        assert!(is_resident(address(2)) && is_resident(address(3).wrapping_sub(PAGE)));
        keep_ready();
        assert!(!is_resident(address(3)), "one ready buffer is enough");
        assert_eq!(ask(), address(2));
        // This takes all buffers that are left in the reserve; then the next request gets null.
        let mut lent = 3;
        while !ask().is_null() {
            lent += 1;
        }
        assert_eq!(lent, MOST);
        assert_eq!(REFUSED.load(Relaxed), 1);
        // A CUPTI that crashes when a request is refused gets spare buffers, and never null.
        MAY_REFUSE.store(false, Relaxed);
        let spare: Vec<*mut u8> = (0..SPARE + 2).map(|_| ask()).collect();
        assert!(spare.iter().all(|at| !at.is_null()));
        assert_eq!(spare[SPARE - 1], spare[SPARE + 1]);
        assert_eq!(REFUSED.load(Relaxed), 1);
        spare.into_iter().for_each(|at| hand_in(at, 10));
        assert!(next().is_none(), "records in spare buffers are dropped");
        assert_eq!(DROPPED_BYTES.load(Relaxed), 10 * (SPARE as u64 + 2));
        assert_eq!(OUT.load(Relaxed), MOST as u32);
        // Buffers that CUPTI had when it was detached may come back late. They no longer count as
        // out.
        let late = address(7);
        assert_eq!(abandon(), MOST as u64);
        MAY_REFUSE.store(true, Relaxed);
        let again = ask();
        assert!(!again.is_null() && again != late, "a buffer other than the late one");
        hand_in(late, 500);
        assert_eq!(OUT.load(Relaxed), 1);
        let first = next().unwrap();
        assert_eq!((first.at, first.valid), (late, 500));
        recycle(first);
        assert_eq!(ask(), late);
        // Detaching several times has the same effect each time.
        for _ in 0..3 {
            while !ask().is_null() {}
            assert_eq!((OUT.load(Relaxed), abandon()), (MOST as u32, MOST as u64));
        }
    }
}
