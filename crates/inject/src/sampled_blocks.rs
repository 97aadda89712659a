//! The blocks that sampling kept, by address, so that their frees are recorded: a filter of
//! bytes before an exact table, in memory that a forked child finds empty.

use crate::state::HOT;
use crate::sys;
use crate::tables::{self, SAMPLED_BLOCKS_BYTES};
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
struct SampledBlocks {
    filter: [AtomicU8; FILTER],
    table: [[AtomicUsize; 8]; FIRST + BUCKETS],
}

const _: () = assert!(size_of::<SampledBlocks>() == SAMPLED_BLOCKS_BYTES);

/// The highest bits are those that depend on all of the address.
#[inline(always)]
fn hash(address: usize) -> u64 {
    spread(address as u64)
}

#[inline(always)]
fn table() -> Option<&'static SampledBlocks> {
    // SAFETY: null, or mapped as one, zeroed, for good.
    unsafe { HOT.sampled_blocks.load(Acquire).cast::<SampledBlocks>().as_ref() }
}

/// The two filter bytes of a hash, in one cache line. Of 16,384 bytes and 2,000 kept blocks one alone
/// lets pass one of eight blocks that were not kept, both one of twenty.
#[inline(always)]
fn filters(hash: u64) -> [usize; 2] {
    const WITHIN_LINE: usize = 63;
    let first = (hash >> (64 - FILTER.ilog2())) as usize;
    // Odd, so that it is another byte.
    [first, first ^ ((hash >> 40) as usize & WITHIN_LINE | 1)]
}

/// Whether a block may be among them: one load for most that are not.
#[inline(always)]
pub fn is_candidate(address: usize) -> bool {
    table().is_some_and(|table| {
        let [first, second] = filters(hash(address));
        table.filter[first].load(Relaxed) != 0 && table.filter[second].load(Relaxed) != 0
    })
}

#[cold]
fn map() {
    tables::map();
    // Before Linux 4.14, which empties nothing in a child: that records frees of its parent's blocks,
    // which the collector does not know and ignores.
    if HOT.sampled_blocks.load(Acquire).is_null()
        && let Some(new) = sys::map_anonymous(size_of::<SampledBlocks>())
        && HOT.sampled_blocks.compare_exchange(core::ptr::null_mut(), new, AcqRel, Acquire).is_err()
    {
        // SAFETY: lost the race; no thread has this mapping.
        unsafe { sys::unmap(new, size_of::<SampledBlocks>()) };
    }
}

impl SampledBlocks {
    /// The places where an address may be.
    fn places(&self, hash: u64) -> impl Iterator<Item = &AtomicUsize> {
        let hash = (hash >> 40) as usize;
        let buckets = [hash & (FIRST - 1), FIRST + (hash & (BUCKETS - 1))];
        buckets.into_iter().filter_map(|bucket| self.table.get(bucket)).flatten()
    }
}

/// Keeps a block's address; false if there is no place for it.
pub fn insert(address: usize) -> bool {
    if HOT.sampled_blocks.load(Relaxed).is_null() {
        map();
    }
    let Some(table) = table() else { return false };
    let h = hash(address);
    for place in table.places(h) {
        if place.load(Relaxed) == 0 && place.compare_exchange(0, address, AcqRel, Relaxed).is_ok() {
            for count in filters(h).map(|at| &table.filter[at]) {
                let _ = count.fetch_update(AcqRel, Relaxed, |n| (n < 255).then_some(n + 1));
            }
            return true;
        }
    }
    false
}

/// Whether the block was kept, which it then is no more.
pub fn remove(address: usize) -> bool {
    let Some(table) = table() else { return false };
    let h = hash(address);
    for place in table.places(h) {
        if place.load(Relaxed) == address
            && place.compare_exchange(address, 0, AcqRel, Relaxed).is_ok()
        {
            for count in filters(h).map(|at| &table.filter[at]) {
                // A count that reached 255 is no longer known: it stays.
                let less = |n: u8| (n < 255).then(|| n.saturating_sub(1));
                let _ = count.fetch_update(AcqRel, Relaxed, less);
            }
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
            assert!(insert(i * 64));
        }
        for i in 1..=5000usize {
            assert!(is_candidate(i * 64));
            assert!(remove(i * 64));
            assert!(!remove(i * 64));
        }
    }
}
