//! The blocks that sampling kept, by address, so that their frees are recorded: a filter of
//! bytes before an exact table, in memory that a forked child finds empty.

use crate::sys::{self, flags};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering::*};
use tprof_wire::hash::spread;

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

#[inline(always)]
fn hash(address: usize) -> usize {
    (spread(address as u64 >> 4) >> 40) as usize
}

/// Whether a block may be among them: one load for nearly every one that is not.
#[inline(always)]
pub fn is_candidate(address: usize) -> bool {
    let kept = KEPT.load(Relaxed);
    // SAFETY: a non-null pointer is a mapped `Kept`, for good.
    !kept.is_null() && unsafe { (*kept).filter[hash(address) & (FILTER - 1)].load(Relaxed) != 0 }
}

fn table() -> Option<&'static Kept> {
    let mut kept = KEPT.load(Acquire);
    if kept.is_null() {
        let new = sys::map_anonymous(size_of::<Kept>())?;
        // Refused by kernels before 4.14: a child then records frees of its
        // parent's blocks, which the collector does not know and ignores.
        // SAFETY: just mapped; to be empty in a forked child is what its users expect.
        unsafe { sys::advise(new, size_of::<Kept>(), flags::MADV_WIPEONFORK) };
        match KEPT.compare_exchange(core::ptr::null_mut(), new.cast(), AcqRel, Acquire) {
            Ok(_) => kept = new.cast(),
            Err(other) => {
                // SAFETY: lost the race; no thread has this mapping.
                unsafe { sys::unmap(new, size_of::<Kept>()) };
                kept = other;
            }
        }
    }
    // SAFETY: mapped, zeroed, for good.
    Some(unsafe { &*kept })
}

/// Keeps a block's address; false if there is no place for it.
pub fn remember(address: usize) -> bool {
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

/// Whether the block was kept, which it then is no more.
pub fn forget(address: usize) -> bool {
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
