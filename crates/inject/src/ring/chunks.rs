//! Takes chunks of the region: a thread takes a chunk by clearing its bit in a bitmap, and makes it
//! accessible before it writes to it.

use crate::{state, sys};
use tprof_wire::region::*;
use tprof_wire::sync::{AtomicU64, Ordering::*};

/// Number of slots that are kept free at the end of a chunk, for nested signal handlers.
pub const SPARE: usize = 8;

/// Clears one set bit in a bitmap, in which set bits are free items. Returns the bit's index.
///
/// # Safety
/// `region` is this process's region, and has a bitmap of `words` words at the offset `bitmap`.
pub unsafe fn take(region: *mut u8, bitmap: usize, words: usize) -> Option<usize> {
    for word in 0..words {
        // SAFETY: the caller guarantees this process's region, which contains the bitmap and is
        // never unmapped.
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

/// Sets a bit in a bitmap again, which makes its item free.
///
/// # Safety
/// `region` is this process's region; [`take`] returned `index`.
pub unsafe fn give_back(region: *mut u8, bitmap: usize, index: usize) {
    // SAFETY: the caller guarantees this process's region. `take` returned `index`, so the bit is
    // in the bitmap.
    let bits = unsafe { &*region.add(bitmap + index / 64 * 8).cast::<AtomicU64>() };
    bits.fetch_or(1 << (index % 64), Release);
}

/// Bit set of the large chunks whose pages are in memory.
static POPULATED: [AtomicU64; LARGE_WORDS] = [const { AtomicU64::new(0) }; LARGE_WORDS];

/// Whether any large chunk was made accessible before.
pub fn is_any_open() -> bool {
    POPULATED.iter().any(|word| word.load(Relaxed) != 0)
}

/// Prepares a new region, none of whose pages are in memory yet. If `sparing`, only a small part of
/// it was mapped, so the bits of all other chunks are cleared.
///
/// # Safety
/// `region` is this process's region, mapped but not published yet.
pub unsafe fn prepare(region: *mut u8, sparing: bool) {
    if sparing {
        for word in 0..LARGE_WORDS {
            // SAFETY: the caller guarantees the region, and the large chunks' bitmap is at this
            // offset.
            unsafe { set_word(region, LARGE_BITMAP_OFFSET + word * 8, 0) };
        }
        for word in SPARING_CHUNKS / 64..SMALL_WORDS {
            // SAFETY: the caller guarantees the region, and the small chunks' bitmap is at this
            // offset.
            unsafe { set_word(region, SMALL_BITMAP_OFFSET + word * 8, 0) };
        }
    }
    for word in &POPULATED {
        word.store(0, Relaxed);
    }
}

/// # Safety
/// The same premises as [`prepare`]; `offset` is that of a word of a bitmap.
unsafe fn set_word(region: *mut u8, offset: usize, value: u64) {
    // SAFETY: the caller guarantees the region, and its bitmaps are in the part that is always
    // mapped.
    unsafe { (*region.add(offset).cast::<AtomicU64>()).store(value, Relaxed) };
}

/// Takes a chunk and brings its pages into memory, so that writing to it can't fail.
pub fn take_chunk(large: bool, quiet: bool) -> Option<ChunkRef> {
    let region = state::REGION.load(Relaxed);
    if region.is_null() {
        return None;
    }
    let (bitmap, words) =
        if large { (LARGE_BITMAP_OFFSET, LARGE_WORDS) } else { (SMALL_BITMAP_OFFSET, SMALL_WORDS) };
    // SAFETY: `REGION` is this process's region, which is never unmapped, and has this bitmap.
    let index = unsafe { take(region, bitmap, words) }?;
    let chunk = if large { ChunkRef::large(index) } else { ChunkRef::small(index) };
    let (offset, bytes) = chunk.place()?;
    // SAFETY: `place` returned the offset of a chunk, which is inside the region.
    let at = unsafe { region.add(offset) };
    // Large chunks are used again and again. Each is made accessible and populated only once.
    let known = if large { POPULATED.get(index / 64) } else { None };
    let bit = 1 << (index % 64);
    if known.is_some_and(|word| word.load(Relaxed) & bit != 0) {
        return Some(chunk);
    }
    // The chunk may be inaccessible, and a seccomp filter may forbid changing that.
    // SAFETY: `at` and `bytes` are those of a chunk of the region.
    if quiet || !unsafe { open(at, bytes) } {
        // SAFETY: `take` returned `index` above, from this bitmap.
        unsafe { give_back(region, bitmap, index) };
        return None;
    }
    if let Some(word) = known {
        word.fetch_or(bit, Relaxed);
    }
    Some(chunk)
}

/// Makes a chunk writable and brings its pages into memory. Returns false if there is no memory.
///
/// # Safety
/// `at` and `bytes` are those of a chunk of this process's region.
unsafe fn open(at: *mut u8, bytes: usize) -> bool {
    const EINVAL: isize = -22; // before Linux 5.14
    // SAFETY: the caller guarantees a chunk, which only becomes more accessible.
    if !unsafe { sys::protect(at, bytes, sys::flags::PROT_READ | sys::flags::PROT_WRITE) } {
        return false;
    }
    // SAFETY: the caller guarantees a chunk, and populating it doesn't change its contents.
    let result = unsafe { sys::advise(at, bytes, sys::flags::MADV_POPULATE_WRITE) };
    result >= 0 || result == EINVAL
}

/// Makes as many chunks accessible as one thread may fill. Called before a seccomp filter or mode
/// takes away the right to make system calls.
pub fn open_some() {
    let region = state::REGION.load(Relaxed);
    let mut taken = [None; CHUNKS_PER_THREAD as usize];
    for place in &mut taken {
        *place = take_chunk(true, false);
    }
    for chunk in taken.into_iter().flatten() {
        // SAFETY: `take_chunk` returned this chunk, and large chunks are numbered after the small
        // ones.
        unsafe { give_back(region, LARGE_BITMAP_OFFSET, chunk.0 as usize - 1 - SMALL_CHUNKS) };
    }
}
