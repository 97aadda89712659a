//! Ids of the stacks that were used last, by their hash: in 256 KiB, touched as needed, where the
//! tables of all stacks cost a miss (40 ns a stack on a busy heap).

use crate::wiped;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

/// Of 40 further bits of the hash beside the id, in one word: two writers cannot mix them.
type Entry = AtomicU64;

/// Sets by the top bits of the hash, each of half a cache line. cc1 uses 12,000 stacks.
type Set = [Entry; 4];
static SETS: AtomicPtr<Set> = AtomicPtr::new(core::ptr::null_mut());
const SET_BITS: u32 = 13;
const ID_BITS: u32 = 24;
const ID_MASK: u64 = (1 << ID_BITS) - 1;

/// Maps them once; the kernel empties them in a forked child.
pub fn map() {
    wiped::map(&SETS, size_of::<Set>() << SET_BITS);
}

#[inline(always)]
fn set(hash: u64) -> Option<&'static Set> {
    // SAFETY: null, or mapped for the process's life; the index has SET_BITS bits.
    unsafe {
        let sets = SETS.load(Relaxed);
        if sets.is_null() { None } else { Some(&*sets.add((hash >> (64 - SET_BITS)) as usize)) }
    }
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
    let mut entry = hash << ID_BITS | u64::from(id);
    for place in set(hash).into_iter().flatten() {
        let before = place.load(Relaxed);
        place.store(entry, Relaxed);
        entry = before;
    }
}
