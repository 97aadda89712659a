//! The set of blocks that were sampled, by address, so that `free` can tell whether to record a
//! free. A filter of one-byte counters is in front of an exact table, since nearly all freed
//! blocks are not in the set.

use crate::state::HOT;
use crate::sys;
use crate::tables::{self, SAMPLED_BLOCKS_BYTES};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::*};
use tprof_wire::hash::spread;

/// Number of filter bytes. Each byte counts the sampled blocks whose addresses hash to it, up to
/// 255.
const FILTER: usize = 1 << 14;
/// Number of buckets. Each has room for eight addresses.
const BUCKETS: usize = 1 << 13;
/// Number of additional buckets, which together fill one page. Every address tries one of these
/// before its own bucket, so that a process that lasts only milliseconds touches one page of the
/// table and pays one page fault.
const FIRST: usize = 4096 / 64;

/// Filter and table. The kernel zeroes this memory in a forked child, so that the child's set is
/// empty.
#[repr(C, align(64))]
struct SampledBlocks {
    filter: [AtomicU8; FILTER],
    table: [[AtomicUsize; 8]; FIRST + BUCKETS],
}

const _: () = assert!(size_of::<SampledBlocks>() == SAMPLED_BLOCKS_BYTES);

/// Hashes an address. Only the highest bits of the result depend on all bits of the address.
#[inline(always)]
fn hash(address: usize) -> u64 {
    spread(address as u64)
}

#[inline(always)]
fn table() -> Option<&'static SampledBlocks> {
    // SAFETY: `sampled_blocks` is null, or the address of a zeroed mapping of that size. `map` and
    // `tables::map` set it, and nothing unmaps it.
    unsafe { HOT.sampled_blocks.load(Acquire).cast::<SampledBlocks>().as_ref() }
}

/// The two filter bytes of a hash, in one cache line. With 16,384 bytes and 2,000 sampled blocks, a
/// check of one filter byte passes one in eight of the blocks that are not in the set. A check of
/// both bytes passes one in twenty.
#[inline(always)]
fn filters(hash: u64) -> [usize; 2] {
    const WITHIN_LINE: usize = 63;
    let first = (hash >> (64 - FILTER.ilog2())) as usize;
    // The XOR operand is odd, so the second byte differs from the first.
    [first, first ^ ((hash >> 40) as usize & WITHIN_LINE | 1)]
}

/// Whether a block may be in the set. For most blocks outside the set, the answer takes one load.
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
    // Linux before 4.14 can't zero memory in a forked child. A child there still has its parent's
    // set and records frees of its parent's blocks. The collector ignores them, since it doesn't
    // know these blocks.
    if HOT.sampled_blocks.load(Acquire).is_null()
        && let Some(new) = sys::map_anonymous(size_of::<SampledBlocks>())
        && HOT.sampled_blocks.compare_exchange(core::ptr::null_mut(), new, AcqRel, Acquire).is_err()
    {
        // SAFETY: another thread's mapping was published first, so no thread uses this one.
        unsafe { sys::unmap(new, size_of::<SampledBlocks>()) };
    }
}

impl SampledBlocks {
    /// The entries that an address may occupy.
    fn places(&self, hash: u64) -> impl Iterator<Item = &AtomicUsize> {
        let hash = (hash >> 40) as usize;
        let buckets = [hash & (FIRST - 1), FIRST + (hash & (BUCKETS - 1))];
        buckets.into_iter().filter_map(|bucket| self.table.get(bucket)).flatten()
    }
}

/// Inserts a block's address. Returns false if both of its buckets are full or there is no memory.
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
                // A count that reached 255 no longer counts exactly, so it is never decremented.
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
    fn an_inserted_address_is_a_candidate_and_can_be_removed_once() {
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
