//! The blocks that sampling kept, by address, so that their frees are recorded: a filter of
//! bytes before an exact table, in memory that a forked child finds empty.

use crate::sys;
use crate::tables::{self, KEPT, KEPT_BYTES};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::*};
use tprof_wire::hash::spread;

/// Filter bytes: how many kept blocks hash there (saturating at 255).
const FILTER: usize = 1 << 14;
/// Buckets of eight kept addresses.
const BUCKETS: usize = 1 << 13;
/// Further ones, a page of them, where all addresses have a place before their own: a process that
/// lasts for some milliseconds pays a page fault for each page that it touches.
const FIRST: usize = 4096 / 64;

/// Filter and table, in memory that a forked child finds empty.
#[repr(C, align(64))]
struct Kept {
    filter: [AtomicU8; FILTER],
    table: [[AtomicUsize; 8]; FIRST + BUCKETS],
}

const _: () = assert!(size_of::<Kept>() == KEPT_BYTES);

#[inline(always)]
fn hash(address: usize) -> usize {
    (spread(address as u64 >> 4) >> 40) as usize
}

#[inline(always)]
fn kept() -> Option<&'static Kept> {
    // SAFETY: null, or mapped as one, zeroed, for good.
    unsafe { KEPT.load(Acquire).cast::<Kept>().as_ref() }
}

/// Whether a block may be among them: one load for nearly every one that is not.
#[inline(always)]
pub fn is_candidate(address: usize) -> bool {
    kept().is_some_and(|kept| kept.filter[hash(address) & (FILTER - 1)].load(Relaxed) != 0)
}

#[cold]
fn map() {
    tables::map();
    // Before Linux 4.14, which empties nothing in a child: that records frees of its parent's blocks,
    // which the collector does not know and ignores.
    if KEPT.load(Acquire).is_null()
        && let Some(new) = sys::map_anonymous(size_of::<Kept>())
        && KEPT.compare_exchange(core::ptr::null_mut(), new, AcqRel, Acquire).is_err()
    {
        // SAFETY: lost the race; no thread has this mapping.
        unsafe { sys::unmap(new, size_of::<Kept>()) };
    }
}

impl Kept {
    /// Where an address may be.
    fn places(&self, hash: usize) -> impl Iterator<Item = &AtomicUsize> {
        let buckets = [hash & (FIRST - 1), FIRST + (hash & (BUCKETS - 1))];
        buckets.into_iter().filter_map(|bucket| self.table.get(bucket)).flatten()
    }
}

/// Keeps a block's address; false if there is no place for it.
pub fn remember(address: usize) -> bool {
    if KEPT.load(Relaxed).is_null() {
        map();
    }
    let Some(kept) = kept() else { return false };
    let h = hash(address);
    for place in kept.places(h) {
        if place.load(Relaxed) == 0 && place.compare_exchange(0, address, AcqRel, Relaxed).is_ok() {
            let count = &kept.filter[h & (FILTER - 1)];
            let _ = count.fetch_update(AcqRel, Relaxed, |n| (n < 255).then_some(n + 1));
            return true;
        }
    }
    false
}

/// Whether the block was kept, which it then is no more.
pub fn forget(address: usize) -> bool {
    let Some(kept) = kept() else { return false };
    let h = hash(address);
    for place in kept.places(h) {
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
