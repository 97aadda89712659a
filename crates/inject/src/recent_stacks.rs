//! A cache of the ids of recently used stacks, by their hash. It takes 256 KiB; a lookup in the
//! tables of all stacks costs a cache miss (40 ns per stack on a busy heap). Until there are many
//! stacks, the cache uses one page only, since a process that lasts for some milliseconds pays a
//! page fault for each page that it touches.

use crate::tables::{RECENT, RECENT_BYTES};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// An entry is one word with the id and 40 further bits of the hash, so that two writers can't mix
/// their entries.
type Entry = AtomicU64;

/// A set of entries, half a cache line long. The top bits of a hash select the set.
type Set = [Entry; 4];
/// Number of bits of the hash that select a set while the cache uses one page. [`MANY`] is the
/// number for the whole cache; cc1 uses 12,000 stacks.
const FEW: usize = 7;
const MANY: usize = 13;
const PAGE: usize = size_of::<Set>() << FEW;
const _: () = assert!(PAGE == 4096 && PAGE + (size_of::<Set>() << MANY) == RECENT_BYTES);
/// Number of stacks after which the cache uses more than the page.
const MOST_OF_FEW: u32 = 256;
const ID_BITS: u32 = 24;
const ID_MASK: u64 = (1 << ID_BITS) - 1;

/// The sets that are used now: their address, at a page's start, with the shift that turns a hash
/// into a set's index in the low bits. Both are in one word, so that neither is used with an old
/// value of the other. 0 if there is no memory.
static SETS: AtomicUsize = AtomicUsize::new(0);
/// Number of stacks that were stored in the page, or more.
static KEPT: AtomicU32 = AtomicU32::new(0);

/// The value of [`SETS`] for the sets at this offset; 0 if there is no memory.
fn sets(offset: usize, bits: usize) -> usize {
    let memory = RECENT.load(Acquire) as usize;
    if memory == 0 { 0 } else { (memory + offset) | (64 - bits) }
}

/// Called before the first stack, and in a forked child, where all sets are empty.
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
    // SAFETY: the memory is mapped for the process's life, and as many sets begin at this address
    // as the shift allows indexes.
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
