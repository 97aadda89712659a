//! Ids of the stacks that were used last, by their hash: in 256 KiB, where the tables of all stacks
//! cost a miss (40 ns a stack on a busy heap). Before there are many stacks, in one page: a process
//! that lasts for some milliseconds pays a page fault for each page that it touches.

use crate::tables::{RECENT, RECENT_BYTES};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// An entry has 40 further bits of the hash beside the id, in one word: two writers cannot mix
/// them.
type Entry = AtomicU64;

/// Sets by the top bits of the hash, each of half a cache line.
type Set = [Entry; 4];
/// Bits of the hash that choose a set: in the page for few stacks, and in the table for all. cc1
/// uses 12,000 stacks.
const FEW: usize = 7;
const MANY: usize = 13;
const PAGE: usize = size_of::<Set>() << FEW;
const _: () = assert!(PAGE == 4096 && PAGE + (size_of::<Set>() << MANY) == RECENT_BYTES);
/// Stacks that are kept in the page.
const MOST_OF_FEW: u32 = 256;
const ID_BITS: u32 = 24;
const ID_MASK: u64 = (1 << ID_BITS) - 1;

/// What is used of the memory, in which all sets lie behind the page: where it begins, at a page, and
/// in the bits below how far a hash is shifted. Both in one word, so that none is used with the
/// other's. 0: nothing.
static SETS: AtomicUsize = AtomicUsize::new(0);
/// Stacks that were kept in the page, or more.
static KEPT: AtomicU32 = AtomicU32::new(0);

/// The sets from there on; 0 where there is no memory.
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
    // SAFETY: mapped for the process's life; as many sets begin there as the shift leaves numbers.
    Some(unsafe { &*((sets & !63) as *const Set).add(at) })
}

/// The id of the stack with this hash, if it was used lately.
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

/// The stack with this hash has this id.
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
