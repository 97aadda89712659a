//! Chunks of the region: taken by their bit in a bitmap, opened before they are used.

use crate::{state, sys};
use core::sync::atomic::{AtomicU64, Ordering::*};
use tprof_wire::region::*;

/// Slots kept free at the end of a chunk.
pub const SPARE: usize = 8;

/// Clears a bit that is set in a bitmap of free things, and returns its index.
///
/// # Safety
/// `region` is this process's region.
pub unsafe fn take(region: *mut u8, bitmap: usize, words: usize) -> Option<usize> {
    for word in 0..words {
        // SAFETY: the bitmap lies in the region, which is mapped for good.
        let bits = unsafe { &*region.add(bitmap + word * 8).cast::<AtomicU64>() };
        let mut now = bits.load(Relaxed);
        while now != 0 {
            let lowest = now & now.wrapping_neg();
            match bits.compare_exchange_weak(now, now & !lowest, AcqRel, Relaxed) {
                Ok(_) => return Some(word * 64 + lowest.trailing_zeros() as usize),
                Err(other) => now = other,
            }
        }
    }
    None
}

/// Sets a bit again.
///
/// # Safety
/// As [`take`]; `index` came from it.
pub unsafe fn give_back(region: *mut u8, bitmap: usize, index: usize) {
    // SAFETY: as `take`; `index` came from it.
    let bits = unsafe { &*region.add(bitmap + index / 64 * 8).cast::<AtomicU64>() };
    bits.fetch_or(1 << (index % 64), Release);
}

/// Large chunks with their pages present.
static POPULATED: [AtomicU64; LARGE_WORDS] = [const { AtomicU64::new(0) }; LARGE_WORDS];

/// Whether any large chunk was opened so far.
pub fn is_any_open() -> bool {
    POPULATED.iter().any(|word| word.load(Relaxed) != 0)
}

/// Prepares a new region: none of its pages are present, and if little of it was mapped,
/// most chunks do not exist.
///
/// # Safety
/// `region` is this process's region, mapped but not published yet.
pub unsafe fn prepare(region: *mut u8, sparing: bool) {
    if sparing {
        for word in 0..LARGE_WORDS {
            // SAFETY: the caller's premise.
            unsafe { set_word(region, LARGE_BITMAP_OFFSET + word * 8, 0) };
        }
        for word in SPARING_CHUNKS / 64..SMALL_WORDS {
            // SAFETY: the caller's premise.
            unsafe { set_word(region, SMALL_BITMAP_OFFSET + word * 8, 0) };
        }
    }
    for word in &POPULATED {
        word.store(0, Relaxed);
    }
}

/// # Safety
/// As [`prepare`]; `offset` is of a word of a bitmap.
unsafe fn set_word(region: *mut u8, offset: usize, value: u64) {
    // SAFETY: the caller's premise: bitmaps lie in the part of the region that is always mapped.
    unsafe { (*region.add(offset).cast::<AtomicU64>()).store(value, Relaxed) };
}

/// Takes a chunk with its pages present: a write to it cannot fail.
pub fn take_chunk(large: bool, quiet: bool) -> Option<ChunkRef> {
    let region = state::REGION.load(Relaxed);
    if region.is_null() {
        return None;
    }
    let (bitmap, words) =
        if large { (LARGE_BITMAP_OFFSET, LARGE_WORDS) } else { (SMALL_BITMAP_OFFSET, SMALL_WORDS) };
    // SAFETY: the region of this process.
    let index = unsafe { take(region, bitmap, words) }?;
    let chunk = if large { ChunkRef::large(index) } else { ChunkRef::small(index) };
    let (offset, bytes) = chunk.place()?;
    // SAFETY: the chunk lies in the region.
    let at = unsafe { region.add(offset) };
    // The large chunks go round and round: they are opened and filled once.
    let known = if large { POPULATED.get(index / 64) } else { None };
    let bit = 1 << (index % 64);
    if known.is_some_and(|word| word.load(Relaxed) & bit != 0) {
        return Some(chunk);
    }
    // The chunk may be closed, and a seccomp filter may forbid to open it now.
    // SAFETY: the chunk lies in the region.
    if quiet || !unsafe { open(at, bytes) } {
        // SAFETY: `index` was taken above.
        unsafe { give_back(region, bitmap, index) };
        return None;
    }
    if let Some(word) = known {
        word.fetch_or(bit, Relaxed);
    }
    Some(chunk)
}

/// Makes a chunk writable and its pages present; false if there is no memory.
///
/// # Safety
/// A chunk of this process's region.
unsafe fn open(at: *mut u8, bytes: usize) -> bool {
    const EINVAL: isize = -22; // before Linux 5.14
    // SAFETY: the caller's premise; what becomes writable is forbidden nothing.
    if !unsafe { sys::protect(at, bytes, sys::flags::PROT_READ | sys::flags::PROT_WRITE) } {
        return false;
    }
    // SAFETY: the caller's premise; contents stay as they are.
    let result = unsafe { sys::advise(at, bytes, sys::flags::MADV_POPULATE_WRITE) };
    result >= 0 || result == EINVAL
}

/// Opens as many chunks as a thread may fill, for a process that may make no
/// system call soon.
pub fn open_some() {
    let region = state::REGION.load(Relaxed);
    let mut taken = [None; CHUNKS_PER_THREAD as usize];
    for place in &mut taken {
        *place = take_chunk(true, false);
    }
    for chunk in taken.into_iter().flatten() {
        // SAFETY: taken above; large chunks are numbered behind the small ones.
        unsafe { give_back(region, LARGE_BITMAP_OFFSET, chunk.0 as usize - 1 - SMALL_CHUNKS) };
    }
}
