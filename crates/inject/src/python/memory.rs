//! Reads this process's own memory, either directly or through the kernel.

use crate::state;
use crate::sys;
use tprof_wire::python::{Memory, OBJECT, below};
use tprof_wire::sync::Ordering::Relaxed;

/// The addresses that a program's memory may have.
const ADDRESSES: core::ops::Range<u64> = 4096..1 << 47;

/// Whether an object may be at this address: whether it is in [`ADDRESSES`] and aligned. This takes
/// one comparison.
#[inline(always)]
fn is_word(at: u64) -> bool {
    const WORDS: core::ops::Range<u64> = ADDRESSES.start / 8..(ADDRESSES.end - OBJECT) / 8;
    WORDS.contains(&at.rotate_right(3))
}

/// Memory that is read directly, since the interpreter keeps it valid; see [`super`].
pub struct OwnMemory(());

impl OwnMemory {
    /// Allows reading memory directly.
    ///
    /// # Safety
    /// While this value is used, all bytes that are read belong to objects that the interpreter
    /// keeps valid. It does so while the running thread is attached to it and is in a call.
    pub unsafe fn vouched() -> OwnMemory {
        OwnMemory(())
    }
}

impl Memory for OwnMemory {
    #[inline(always)]
    fn u64(&mut self, at: u64) -> Option<u64> {
        if !is_word(at) {
            return None;
        }
        // SAFETY: the address is aligned, and the caller of `vouched` guarantees a valid object.
        Some(unsafe { *(at as *const u64) })
    }

    #[inline(always)]
    fn u32(&mut self, at: u64) -> Option<u32> {
        if !ADDRESSES.contains(&at) || at & 3 != 0 {
            return None;
        }
        // SAFETY: the address is aligned, and the caller of `vouched` guarantees a valid object.
        Some(unsafe { *(at as *const u32) })
    }

    #[inline(always)]
    fn u8(&mut self, at: u64) -> Option<u8> {
        // SAFETY: the caller of `vouched` guarantees a valid object.
        ADDRESSES.contains(&at).then(|| unsafe { *(at as *const u8) })
    }

    #[inline(always)]
    fn fields<const N: usize>(&mut self, object: u64, offsets: [u64; N]) -> Option<[u64; N]> {
        // One comparison checks all fields, since an object's fields are close to its address.
        if !is_word(object) {
            return None;
        }
        // SAFETY: the fields are aligned, and the caller of `vouched` guarantees a valid object.
        Some(offsets.map(|offset| unsafe { *(object.wrapping_add(offset) as *const u64) }))
    }

    #[inline(always)]
    fn pairs(&mut self, at: u64, bytes: u64, mut give: impl FnMut([u64; 2])) -> Option<()> {
        if !is_word(at) {
            return None;
        }
        let mut pair = at as *const [u64; 2];
        // SAFETY: the address is aligned, and the caller of `vouched` guarantees an object with
        // this many bytes from here on. The last words are read as a whole; they are in the same
        // page as those bytes.
        unsafe {
            let end = pair.add((bytes / 16) as usize);
            while pair < end {
                give(*pair);
                pair = pair.add(1);
            }
            let (word, rest) = (pair.cast::<u64>(), bytes % 16);
            if rest > 8 {
                give([*word, *word.add(1) & below(rest - 8)]);
            } else if rest > 0 {
                give([*word & below(rest), 0]);
            }
        }
        Some(())
    }
}

/// Bytes that are read at once. Blocks are aligned to this, so that none crosses a page.
const BLOCK: usize = 4096;
const WORDS: usize = BLOCK / 8;
/// Maximum number of blocks that are cached.
const BLOCKS: usize = 64;

/// Memory that may not exist, so it is read through the kernel. A block that was just read isn't
/// read again, since frames and their code are close together.
///
/// A thread's next stack probably needs the same blocks as its last one. One system call reads all
/// of these anew. One call for each block (680 ns) takes twice as long.
#[repr(C)]
pub struct KernelMemory {
    /// Addresses of the blocks; 0 for none.
    starts: [u64; BLOCKS],
    /// Whether a block was used since the last [`KernelMemory::begin`].
    used: [bool; BLOCKS],
    blocks: [[u64; WORDS]; BLOCKS],
    /// Number of blocks that are cached.
    len: usize,
    /// Index of the block that was used last.
    last: usize,
}

impl KernelMemory {
    /// Drops the cached contents, and reads the blocks anew that were used since the last call.
    pub fn begin(&mut self) {
        let KernelMemory { starts, used, len, .. } = self;
        let mut kept = 0;
        for at in 0..(*len).min(BLOCKS) {
            let is_used = used.get_mut(at).is_some_and(core::mem::take);
            if let Some(start) = starts.get(at).copied().filter(|_| is_used)
                && let Some(place) = starts.get_mut(kept)
            {
                *place = start;
                kept += 1;
            }
        }
        self.len = 0;
        self.last = 0;
        if kept > 0 {
            let pid = state::PID.load(Relaxed);
            let starts = self.starts.get(..kept).unwrap_or_default();
            // If one of the blocks no longer exists, the blocks after it are read when they are
            // needed.
            self.len = sys::read_blocks(pid, starts, &mut self.blocks);
        }
    }

    fn word(&mut self, at: u64) -> Option<u64> {
        let start = at & !(BLOCK as u64 - 1);
        let place = ((at - start) / 8) as usize;
        if self.starts.get(self.last).is_none_or(|last| *last != start) || self.last >= self.len {
            self.last = self.find(start)?;
        }
        *self.used.get_mut(self.last)? = true;
        self.blocks.get(self.last)?.get(place).copied()
    }

    /// Finds or reads the block that begins at this address. Returns its index.
    fn find(&mut self, start: u64) -> Option<usize> {
        let known = self.starts.iter().take(self.len).position(|known| *known == start);
        if known.is_some() {
            return known;
        }
        // If all places are in use, the last one is reused.
        let index = self.len.min(BLOCKS - 1);
        *self.starts.get_mut(index)? = 0;
        self.len = index;
        if !read(start, self.blocks.get_mut(index)?) {
            return None;
        }
        *self.starts.get_mut(index)? = start;
        self.len = index + 1;
        Some(index)
    }
}

impl Memory for KernelMemory {
    fn u64(&mut self, at: u64) -> Option<u64> {
        if !ADDRESSES.contains(&at) || at & 7 != 0 {
            return None;
        }
        self.word(at)
    }

    fn u32(&mut self, at: u64) -> Option<u32> {
        if !ADDRESSES.contains(&at) || at & 3 != 0 {
            return None;
        }
        Some((self.word(at & !7)? >> ((at & 4) * 8)) as u32)
    }

    fn u8(&mut self, at: u64) -> Option<u8> {
        if !ADDRESSES.contains(&at) {
            return None;
        }
        Some((self.word(at & !7)? >> ((at & 7) * 8)) as u8)
    }
}

/// Reads this process's memory through the kernel. Returns false if some of it could not be read.
pub fn read(at: u64, into: &mut [u64]) -> bool {
    // In a vfork child this is the parent's pid, which works too, since the two share their memory.
    let bytes = size_of_val(into) as isize;
    sys::read_memory(state::PID.load(Relaxed), at, into) == bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn both_readers_agree_and_refuse_memory_that_does_not_exist() {
        state::PID.store(sys::pid(), Relaxed);
        let words = Box::new([0x0102_0304_0506_0708u64, 7]);
        let at = words.as_ptr() as u64;
        let mut kernel = Box::new(KernelMemory {
            starts: [0; BLOCKS],
            used: [false; BLOCKS],
            blocks: [[0; WORDS]; BLOCKS],
            len: 0,
            last: 0,
        });
        let kernel = &mut *kernel;
        // SAFETY: the test reads only `words`, which outlives `here`.
        let mut here = unsafe { OwnMemory::vouched() };
        for memory in [&mut *kernel as &mut dyn Memory, &mut here] {
            assert_eq!((memory.u64(at), memory.u64(at + 8)), (Some(words[0]), Some(7)));
            assert_eq!(memory.u32(at + 4), Some(0x0102_0304));
            assert_eq!((memory.u8(at), memory.u8(at + 7)), (Some(8), Some(1)));
            assert_eq!((memory.u64(at + 1), memory.u32(at + 2), memory.u64(0)), (None, None, None));
        }
        for bytes in 0..=16 {
            let (mut through, mut direct) = ([[0; 2]; 2], [[0; 2]; 2]);
            let mut count = 0;
            kernel
                .pairs(at, bytes, |pair| {
                    through[count] = pair;
                    count += 1
                })
                .unwrap();
            count = 0;
            here.pairs(at, bytes, |pair| {
                direct[count] = pair;
                count += 1
            })
            .unwrap();
            assert_eq!(through, direct, "{bytes}");
        }
        assert_eq!(
            (here.fields(at, [8, 0]), kernel.fields(at, [8, 0])),
            (Some([7, words[0]]), Some([7, words[0]]))
        );
        let page = sys::map_anonymous(8192).unwrap();
        // SAFETY: the mapping is this test's own.
        assert!(unsafe { sys::protect(page.wrapping_add(4096), 4096, sys::flags::PROT_NONE) });
        let page = page as u64;
        assert_eq!((kernel.u64(page + 4088), kernel.u64(page + 4096)), (Some(0), None));
        assert_eq!(kernel.u8(page + 8191), None);
        // A block that could not be read isn't cached.
        assert_eq!(kernel.u64(page + 4096), None);
        // `begin` reads the used blocks again, so they have their current contents.
        // SAFETY: the page is this test's own.
        unsafe { *(page as *mut u64).add(4088 / 8) = 9 };
        assert_eq!(kernel.u64(page + 4088), Some(0));
        kernel.begin();
        assert_eq!(
            (kernel.len, kernel.u64(page + 4088), kernel.u64(at)),
            (2, Some(9), Some(words[0]))
        );
        // There are more blocks than places, and later one block disappears.
        let many = sys::map_anonymous(BLOCK * 2 * BLOCKS).unwrap();
        for round in 0..3 {
            for block in 0..2 * BLOCKS {
                // SAFETY: `many` was mapped above with this many blocks.
                unsafe { *many.add(block * BLOCK).cast::<u64>() = (round * 1000 + block) as u64 };
            }
            kernel.begin();
            for block in 0..2 * BLOCKS {
                let at = many as u64 + (block * BLOCK) as u64;
                assert_eq!(kernel.u64(at), Some((round * 1000 + block) as u64));
            }
        }
        // SAFETY: the mapping is this test's own.
        assert!(unsafe { sys::protect(many, 4096, sys::flags::PROT_NONE) });
        kernel.begin();
        assert_eq!(kernel.u64(many as u64), None);
        assert_eq!(kernel.u64(many as u64 + 4096), Some(2000 + 4096 / BLOCK as u64));
    }
}
