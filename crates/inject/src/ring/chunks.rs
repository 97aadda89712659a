//! Chunks of the region: a thread takes one by its bit in a bitmap, and makes it accessible before
//! it writes.

use crate::{state, sys};
use core::sync::atomic::{AtomicU64, Ordering::*};
use tprof_wire::region::*;

/// Slots kept free at the end of a chunk.
pub const SPARE: usize = 8;

/// Clears a bit that is set in a bitmap, where set bits are free items. Returns its index.
///
/// # Safety
/// `region` is this process's region.
pub unsafe fn take(region: *mut u8, bitmap: usize, words: usize) -> Option<usize> {
    for word in 0..words {
        // SAFETY: the caller guarantees this process's region, in which the bitmap lies; it is
        // mapped for good.
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

/// Sets the bit again.
///
/// # Safety
/// `region` is this process's region; [`take`] returned `index`.
pub unsafe fn give_back(region: *mut u8, bitmap: usize, index: usize) {
    // SAFETY: the caller guarantees this process's region, and `take` returned `index`, so the bit
    // lies in the bitmap.
    let bits = unsafe { &*region.add(bitmap + index / 64 * 8).cast::<AtomicU64>() };
    bits.fetch_or(1 << (index % 64), Release);
}

/// Bit set of the large chunks whose pages are present.
static POPULATED: [AtomicU64; LARGE_WORDS] = [const { AtomicU64::new(0) }; LARGE_WORDS];

/// Whether any large chunk was opened before.
pub fn is_any_open() -> bool {
    POPULATED.iter().any(|word| word.load(Relaxed) != 0)
}

/// Prepares a new region. None of its pages are present. If only a small part of it was mapped,
/// most chunks do not exist.
///
/// # Safety
/// `region` is this process's region, mapped but not published yet.
pub unsafe fn prepare(region: *mut u8, sparing: bool) {
    if sparing {
        for word in 0..LARGE_WORDS {
            // SAFETY: the caller guarantees the region, and the bitmap's words lie at these
            // offsets.
            unsafe { set_word(region, LARGE_BITMAP_OFFSET + word * 8, 0) };
        }
        for word in SPARING_CHUNKS / 64..SMALL_WORDS {
            // SAFETY: the caller guarantees the region, and the bitmap's words lie at these
            // offsets.
            unsafe { set_word(region, SMALL_BITMAP_OFFSET + word * 8, 0) };
        }
    }
    for word in &POPULATED {
        word.store(0, Relaxed);
    }
}

/// # Safety
/// The same premises as [`prepare`]; a bitmap's word lies at `offset`.
unsafe fn set_word(region: *mut u8, offset: usize, value: u64) {
    // SAFETY: the caller guarantees the region; its bitmaps lie in the part that is always mapped.
    unsafe { (*region.add(offset).cast::<AtomicU64>()).store(value, Relaxed) };
}

/// Takes a chunk and makes its pages present, so that writing to it can't fail.
pub fn take_chunk(large: bool, quiet: bool) -> Option<ChunkRef> {
    let region = state::REGION.load(Relaxed);
    if region.is_null() {
        return None;
    }
    let (bitmap, words) =
        if large { (LARGE_BITMAP_OFFSET, LARGE_WORDS) } else { (SMALL_BITMAP_OFFSET, SMALL_WORDS) };
    // SAFETY: `REGION` is this process's region, which is mapped for good.
    let index = unsafe { take(region, bitmap, words) }?;
    let chunk = if large { ChunkRef::large(index) } else { ChunkRef::small(index) };
    let (offset, bytes) = chunk.place()?;
    // SAFETY: `place` returned the offset of a chunk of the region.
    let at = unsafe { region.add(offset) };
    // Large chunks are used again and again. They are opened and populated only once.
    let known = if large { POPULATED.get(index / 64) } else { None };
    let bit = 1 << (index % 64);
    if known.is_some_and(|word| word.load(Relaxed) & bit != 0) {
        return Some(chunk);
    }
    // The chunk may be inaccessible, and a seccomp filter may forbid opening it now. SAFETY: `at`
    // and `bytes` are those of a chunk of the region.
    if quiet || !unsafe { open(at, bytes) } {
        // SAFETY: `take` returned `index` above.
        unsafe { give_back(region, bitmap, index) };
        return None;
    }
    if let Some(word) = known {
        word.fetch_or(bit, Relaxed);
    }
    Some(chunk)
}

/// Makes a chunk writable and its pages present. Returns false if there is no memory.
///
/// # Safety
/// `at` and `bytes` are those of a chunk of this process's region.
unsafe fn open(at: *mut u8, bytes: usize) -> bool {
    const EINVAL: isize = -22; // before Linux 5.14
    // SAFETY: the caller guarantees a chunk, and it only becomes more accessible.
    if !unsafe { sys::protect(at, bytes, sys::flags::PROT_READ | sys::flags::PROT_WRITE) } {
        return false;
    }
    // SAFETY: the caller guarantees a chunk, and populating it doesn't change its contents.
    let result = unsafe { sys::advise(at, bytes, sys::flags::MADV_POPULATE_WRITE) };
    result >= 0 || result == EINVAL
}

/// Opens as many chunks as a thread may fill, for a process that soon may not make system calls.
pub fn open_some() {
    let region = state::REGION.load(Relaxed);
    let mut taken = [None; CHUNKS_PER_THREAD as usize];
    for place in &mut taken {
        *place = take_chunk(true, false);
    }
    for chunk in taken.into_iter().flatten() {
        // SAFETY: `take_chunk` returned this chunk. Large chunks are numbered after the small ones.
        unsafe { give_back(region, LARGE_BITMAP_OFFSET, chunk.0 as usize - 1 - SMALL_CHUNKS) };
    }
}
