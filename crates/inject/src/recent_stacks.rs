//! A cache that maps the hash of a recently used stack to its id. It takes 256 KiB. Without it,
//! each lookup in the tables of all stacks costs a cache miss (40 ns per stack on a busy heap).
//!
//! Until a process has many stacks, the cache uses only one page, so that a process that lasts only
//! milliseconds pays one page fault for it.

use crate::tables::{RECENT, RECENT_BYTES};
use tprof_wire::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// An entry is one word with the id and 40 bits of the hash, so that concurrent writers can't
/// combine the id of one stack with the hash of another.
type Entry = AtomicU64;

/// A set of entries, which fills half a cache line. The top bits of a hash select the set.
type Set = [Entry; 4];
/// Number of bits of the hash that select a set while the cache uses one page.
const FEW: usize = 7;
/// Like [`FEW`], for the whole cache. The compiler cc1, for example, has 12,000 stacks.
const MANY: usize = 13;
const PAGE: usize = size_of::<Set>() << FEW;
const _: () = assert!(PAGE == 4096 && PAGE + (size_of::<Set>() << MANY) == RECENT_BYTES);
/// Number of stored stacks after which the cache grows beyond the page.
const MOST_OF_FEW: u32 = 256;
const ID_BITS: u32 = 24;
const ID_MASK: u64 = (1 << ID_BITS) - 1;

/// The sets that are used now: their address, which is page-aligned, with the shift in its low bits
/// that turns a hash into a set's index. One word has both, so that no thread combines a new
/// address with an old shift. 0 if there is no memory.
static SETS: AtomicUsize = AtomicUsize::new(0);
/// Number of stacks that were stored while the cache used one page. A stack that was stored twice
/// counts twice.
static KEPT: AtomicU32 = AtomicU32::new(0);

/// The value of [`SETS`] for the sets at this offset of the memory, with `bits` bits of the hash as
/// index; 0 if there is no memory.
fn sets(offset: usize, bits: usize) -> usize {
    let memory = RECENT.load(Acquire) as usize;
    if memory == 0 { 0 } else { (memory + offset) | (64 - bits) }
}

/// Called before the first stack, and in a forked child, in which the kernel has zeroed all sets.
pub fn prepare() {
    KEPT.store(0, Relaxed);
    SETS.store(sets(0, FEW), Release);
}

#[inline(always)]
fn set(hash: u64) -> Option<&'static Set> {
    let sets = SETS.load(Relaxed);
    if sets == 0 {
        return None;
    }
    let at = (hash >> (sets & 63)) as usize;
    // SAFETY: `SETS` has the address of memory that stays mapped for the process's life, with one
    // set for each index that its shift can yield.
    Some(unsafe { &*((sets & !63) as *const Set).add(at) })
}

/// The id of the stack with this hash, if it is cached.
#[inline(always)]
pub fn id_of(hash: u64) -> Option<u32> {
    for entry in set(hash)? {
        let id = entry.load(Relaxed) ^ hash << ID_BITS;
        if id & !ID_MASK == 0 && id != 0 {
            return Some(id as u32);
        }
    }
    None
}

/// Caches the id of the stack with this hash.
#[inline(always)]
pub fn keep(hash: u64, id: u32) {
    let used = SETS.load(Relaxed);
    if used == 0 {
        let _ = SETS.compare_exchange(0, sets(0, FEW), AcqRel, Relaxed);
    } else if used & 63 == 64 - FEW && KEPT.fetch_add(1, Relaxed) >= MOST_OF_FEW {
        SETS.store(sets(PAGE, MANY), Release);
    }
    let mut entry = hash << ID_BITS | u64::from(id);
    for place in set(hash).into_iter().flatten() {
        let before = place.load(Relaxed);
        place.store(entry, Relaxed);
        entry = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::testing::alone;

    /// The whole cache, empty.
    fn begin() -> std::sync::MutexGuard<'static, ()> {
        let alone = alone();
        crate::tables::map();
        prepare();
        alone
    }

    /// A hash that selects this set of the page, with other bits of its own.
    fn hash(set: u64, own: u64) -> u64 {
        set << (64 - FEW) | own
    }

    #[test]
    fn a_stack_is_found_by_its_whole_hash() {
        let _alone = begin();
        let of = hash(5, 0x1234_5678);
        keep(of, 77);
        assert_eq!(id_of(of), Some(77));
        assert_eq!(id_of(of ^ 1), None);
        assert_eq!(id_of(of ^ 1 << 39), None);
    }

    #[test]
    fn the_four_stacks_of_a_set_that_were_kept_last_are_found() {
        let _alone = begin();
        for own in 1..=5 {
            keep(hash(6, own), own as u32 + 100);
        }
        let found = [1, 2, 3, 4, 5].map(|own| id_of(hash(6, own)));
        assert_eq!(found, [None, Some(102), Some(103), Some(104), Some(105)]);
    }

    #[test]
    fn many_stacks_are_kept_in_more_than_the_page() {
        let _alone = begin();
        let of = |stack: u64| tprof_wire::hash::spread(stack + 1_000_000);
        (1..=2000).for_each(|stack| keep(of(stack), stack as u32));
        let found = (301..=2000).filter(|stack| id_of(of(*stack)) == Some(*stack as u32)).count();
        assert!(found > 1690, "{found}");
        prepare();
        assert_eq!(id_of(of(2000)), None, "a child begins with none");
    }
}
