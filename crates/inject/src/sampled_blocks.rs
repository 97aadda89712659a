//! The set of blocks that were sampled, by address, so that `free` can tell whether to record a
//! free. A filter of one-byte counters is in front of an exact table, since nearly all freed
//! blocks are not in the set.

use crate::state::HOT;
use crate::sys;
use crate::tables::{self, SAMPLED_BLOCKS as MEMORY, SAMPLED_BLOCKS_BYTES};
use tprof_wire::hash::spread;
use tprof_wire::sync::{AtomicU8, AtomicUsize, Ordering::*};

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

/// What the pointer in [`HOT`] leads to until the set is mapped: a filter that no block passes. So
/// hooks needn't ask whether there is a set.
pub static NOTHING: [AtomicU8; FILTER] = [const { AtomicU8::new(0) }; FILTER];

/// The low half of an address is multiplied by this number to choose filter bytes.
pub const FILTER_FACTOR: u32 = 0x9e37_79b1;
/// The highest bits of the product are the first filter byte: the product is shifted by this.
pub const FIRST_SHIFT: u32 = 32 - FILTER.ilog2();
/// Bits of the product, shifted by this, choose the second filter byte within the same cache line.
pub const SECOND_SHIFT: u32 = 10;
/// The bits that the two filter bytes' indices may differ in, but for the lowest, which differs.
pub const WITHIN_LINE: u32 = 62;

#[inline(always)]
fn table() -> Option<&'static SampledBlocks> {
    // SAFETY: the pointer is null, or the address of a zeroed mapping of that size. `map` and
    // `tables::map` set it, and nothing unmaps it.
    unsafe { MEMORY.load(Acquire).cast::<SampledBlocks>().as_ref() }
}

/// The two filter bytes of an address, in one cache line. With 16,384 bytes and 2,000 sampled
/// blocks, a check of one filter byte passes one in eight of the blocks that are not in the set. A
/// check of both bytes passes one in twenty. `preload-shim`'s `free` computes the same.
#[inline(always)]
fn filters(address: usize) -> [usize; 2] {
    let product = (address as u32).wrapping_mul(FILTER_FACTOR);
    let first = (product >> FIRST_SHIFT) as usize;
    [first, first ^ ((product >> SECOND_SHIFT & WITHIN_LINE) + 1) as usize]
}

/// Whether a block may be in the set. For most blocks outside the set, the answer takes one load.
#[inline(always)]
pub fn is_candidate(address: usize) -> bool {
    let filter = HOT.filter.load(Acquire).cast::<[AtomicU8; FILTER]>();
    // SAFETY: the pointer is that of `NOTHING`, or of the filter with which `SampledBlocks` begins.
    let filter = unsafe { &*filter };
    let [first, second] = filters(address);
    filter[first].load(Relaxed) != 0 && filter[second].load(Relaxed) != 0
}

#[cold]
fn map() {
    tables::map();
    // Linux before 4.14 can't zero memory in a forked child. A child there still has its parent's
    // set and records frees of its parent's blocks. The collector ignores them, since it doesn't
    // know these blocks.
    if MEMORY.load(Acquire).is_null()
        && let Some(new) = sys::map_anonymous(size_of::<SampledBlocks>())
        && MEMORY.compare_exchange(core::ptr::null_mut(), new, AcqRel, Acquire).is_err()
    {
        // SAFETY: another thread's mapping was published first, so no thread uses this one.
        unsafe { sys::unmap(new, size_of::<SampledBlocks>()) };
    }
    let memory = MEMORY.load(Acquire);
    if !memory.is_null() {
        HOT.filter.store(memory, Release);
    }
}

impl SampledBlocks {
    /// The entries that an address may occupy.
    fn places(&self, address: usize) -> impl Iterator<Item = &AtomicUsize> {
        // Only the highest bits of the hash depend on all bits of the address.
        let hash = (spread(address as u64) >> 40) as usize;
        let buckets = [hash & (FIRST - 1), FIRST + (hash & (BUCKETS - 1))];
        buckets.into_iter().filter_map(|bucket| self.table.get(bucket)).flatten()
    }
}

/// Inserts a block's address. Returns false if both of its buckets are full or there is no memory.
pub fn insert(address: usize) -> bool {
    if core::ptr::eq(HOT.filter.load(Relaxed), (&raw const NOTHING).cast()) {
        map();
    }
    let Some(table) = table() else { return false };
    for place in table.places(address) {
        if place.load(Relaxed) == 0 && place.compare_exchange(0, address, AcqRel, Relaxed).is_ok() {
            for count in filters(address).map(|at| &table.filter[at]) {
                let _ = count.fetch_update(AcqRel, Relaxed, |n| n.checked_add(1));
            }
            return true;
        }
    }
    false
}

/// Removes a block's address. Returns whether it was in the set.
pub fn remove(address: usize) -> bool {
    let Some(table) = table() else { return false };
    for place in table.places(address) {
        if place.load(Relaxed) == address
            && place.compare_exchange(address, 0, AcqRel, Relaxed).is_ok()
        {
            for count in filters(address).map(|at| &table.filter[at]) {
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
        let _alone = crate::testing::alone();
        for i in 1..=5000usize {
            assert!(insert(i * 64));
        }
        for i in 1..=5000usize {
            assert!(is_candidate(i * 64));
            assert!(remove(i * 64));
            assert!(!remove(i * 64));
        }
    }

    #[test]
    fn an_address_that_was_never_kept_is_not_removed() {
        let _alone = crate::testing::alone();
        assert!(insert(0x7000_0000));
        assert!(!remove(0x7000_0040));
        assert!(remove(0x7000_0000));
    }

    #[test]
    fn no_address_is_a_candidate_once_all_were_removed() {
        let _alone = crate::testing::alone();
        let addresses = || (1..200usize).map(|at| 0x6000_0000 + at * 48);
        assert!(addresses().all(insert));
        assert!(addresses().all(remove));
        assert!(!addresses().any(is_candidate));
    }

    #[test]
    fn an_address_that_was_kept_twice_is_removed_twice() {
        let _alone = crate::testing::alone();
        assert!(insert(0x6100_0000) && insert(0x6100_0000));
        assert!(remove(0x6100_0000) && is_candidate(0x6100_0000) && remove(0x6100_0000));
        assert!(!remove(0x6100_0000));
    }

    /// The same address many times: all are in the same two buckets.
    #[test]
    fn full_buckets_refuse_an_address_and_take_it_once_one_was_removed() {
        let _alone = crate::testing::alone();
        let address = 0x6200_0000;
        let kept = (0..100).filter(|_| insert(address)).count();
        assert_eq!(kept, 16, "two buckets of eight");
        assert!(!insert(address));
        assert!(remove(address) && insert(address) && !insert(address));
        assert_eq!((0..100).filter(|_| remove(address)).count(), 16);
        assert!(!is_candidate(address));
    }

    #[test]
    fn a_filter_byte_that_was_full_never_says_that_nothing_was_kept() {
        let _alone = crate::testing::alone();
        let address = 0x6300_0000;
        assert!(insert(address));
        let bytes = filters(address).map(|at| &table().unwrap().filter[at]);
        let before = bytes.map(|byte| byte.load(Relaxed));
        bytes.iter().for_each(|byte| byte.store(254, Relaxed));
        assert!(insert(address) && insert(address));
        assert_eq!(bytes.map(|byte| byte.load(Relaxed)), [255; 2], "no overflow");
        assert!(remove(address) && remove(address) && remove(address));
        assert_eq!(bytes.map(|byte| byte.load(Relaxed)), [255; 2]);
        assert!(is_candidate(address), "the count is inexact, so it stays");
        bytes.iter().zip(before).for_each(|(byte, before)| byte.store(before - 1, Relaxed));
    }

    #[test]
    fn the_two_filter_bytes_of_an_address_are_different_and_in_one_line() {
        for address in (0..100_000usize).map(|at| at * 16) {
            let [first, second] = filters(address);
            assert!(first != second && first / 64 == second / 64 && first < FILTER);
        }
    }

    #[test]
    fn threads_that_keep_and_remove_at_once_leave_nothing() {
        let _alone = crate::testing::alone();
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                scope.spawn(move || {
                    for at in 0..500 {
                        let address = 0x6400_0000 + thread * 0x10_0000 + at * 64;
                        assert!(insert(address) && is_candidate(address) && remove(address));
                    }
                });
            }
        });
        let addresses = (0..4).flat_map(|thread| (0..500).map(move |at| (thread, at)));
        let left = addresses.filter(|(t, at)| is_candidate(0x6400_0000 + t * 0x10_0000 + at * 64));
        assert_eq!(left.count(), 0);
    }
}
