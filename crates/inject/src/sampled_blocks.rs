//! The set of blocks that sampling kept, by address, so that their frees are recorded: a filter of
//! bytes in front of an exact table.

use crate::state::HOT;
use crate::sys;
use crate::tables::{self, SAMPLED_BLOCKS_BYTES};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::*};
use tprof_wire::hash::spread;

/// Number of filter bytes. Each counts the kept blocks whose addresses hash to it, up to 255.
const FILTER: usize = 1 << 14;
/// Number of buckets. Each holds eight kept addresses.
const BUCKETS: usize = 1 << 13;
/// Number of further buckets, one page in all, which every address tries before its own bucket: a
/// process that lasts for some milliseconds pays a page fault for each page that it touches.
const FIRST: usize = 4096 / 64;

/// Filter and table, in memory that a forked child finds empty.
#[repr(C, align(64))]
struct SampledBlocks {
    filter: [AtomicU8; FILTER],
    table: [[AtomicUsize; 8]; FIRST + BUCKETS],
}

const _: () = assert!(size_of::<SampledBlocks>() == SAMPLED_BLOCKS_BYTES);

/// Hashes an address. Only the highest bits depend on all of the address.
#[inline(always)]
fn hash(address: usize) -> u64 {
    spread(address as u64)
}

#[inline(always)]
fn table() -> Option<&'static SampledBlocks> {
    // SAFETY: `sampled_blocks` is null, or the address of a zeroed mapping of that size, which is
    // never unmapped.
    unsafe { HOT.sampled_blocks.load(Acquire).cast::<SampledBlocks>().as_ref() }
}

/// The two filter bytes of a hash, in one cache line. With 16,384 bytes and 2,000 kept blocks, one
/// filter byte alone passes one in eight blocks that were not kept, and both together pass one in
/// twenty.
#[inline(always)]
fn filters(hash: u64) -> [usize; 2] {
    const WITHIN_LINE: usize = 63;
    let first = (hash >> (64 - FILTER.ilog2())) as usize;
    // The difference is odd, so that this is another byte.
    [first, first ^ ((hash >> 40) as usize & WITHIN_LINE | 1)]
}

/// Whether a block may be in the set. For most blocks that are not, this costs one load.
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
    // Linux before 4.14 can't empty memory in a forked child. There, a child records frees of its
    // parent's blocks, which the collector does not know and ignores.
    if HOT.sampled_blocks.load(Acquire).is_null()
        && let Some(new) = sys::map_anonymous(size_of::<SampledBlocks>())
        && HOT.sampled_blocks.compare_exchange(core::ptr::null_mut(), new, AcqRel, Acquire).is_err()
    {
        // SAFETY: another thread's mapping was published first, so no thread uses this one.
        unsafe { sys::unmap(new, size_of::<SampledBlocks>()) };
    }
}

impl SampledBlocks {
    /// The entries in which an address may be.
    fn places(&self, hash: u64) -> impl Iterator<Item = &AtomicUsize> {
        let hash = (hash >> 40) as usize;
        let buckets = [hash & (FIRST - 1), FIRST + (hash & (BUCKETS - 1))];
        buckets.into_iter().filter_map(|bucket| self.table.get(bucket)).flatten()
    }
}

/// Inserts a block's address. Returns false if there is no room for it.
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

/// Removes a block's address. Returns whether it was in the set.
pub fn remove(address: usize) -> bool {
    let Some(table) = table() else { return false };
    let h = hash(address);
    for place in table.places(h) {
        if place.load(Relaxed) == address
            && place.compare_exchange(address, 0, AcqRel, Relaxed).is_ok()
        {
            for count in filters(h).map(|at| &table.filter[at]) {
                // A count that has reached 255 is inexact, so it stays.
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
