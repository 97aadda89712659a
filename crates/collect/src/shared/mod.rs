//! The memory that is shared with targets. A target may write anything to it at any time, so every
//! read is an atomic copy, and every index is checked here.
#![allow(unsafe_code)] // views of mapped memory

pub mod calibrate;
pub mod clock;
mod module_table;

pub use module_table::{publish, take_marks};

use crate::os::sys;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use tprof_wire::record::SLOT_BYTES;
use tprof_wire::region::*;

/// A shared mapping of a sealed file.
pub struct SharedMemory {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread, and its content is only accessed by atomics and by
// `zero`.
unsafe impl Send for SharedMemory {}
// SAFETY: shared references only give access by atomics. `zero` only touches chunks that the target
// has given up.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Maps the whole of `fd`, which is `bytes` long and sealed.
    pub fn new(fd: &OwnedFd, bytes: usize) -> io::Result<SharedMemory> {
        // SAFETY: the kernel chooses the address of a new mapping, so no other memory is affected.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                fd.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mmap returned null"))?;
        Ok(SharedMemory { at, bytes })
    }

    /// Returns the `T` at `offset`. `T` must consist only of atomics.
    fn view<T>(&self, offset: usize) -> &T {
        assert!(offset + size_of::<T>() <= self.bytes && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: the assertion checks bounds and alignment. `T` consists of atomics, which another
        // process may change and for which every content is valid.
        unsafe { &*self.at.as_ptr().add(offset).cast::<T>() }
    }

    /// Returns the word at `offset`.
    #[inline(always)]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.bytes && offset & 7 == 0);
        // SAFETY: the assertion above checks bounds and alignment.
        unsafe { &*self.at.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// Clears a range.
    fn zero(&self, offset: usize, bytes: usize) {
        assert!(offset + bytes <= self.bytes);
        // SAFETY: the assertion checks the bounds. The target has given up the range and does not
        // write to it. If it does so anyway, it damages its own records.
        unsafe { std::ptr::write_bytes(self.at.as_ptr().add(offset), 0, bytes) };
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped this range, and all views borrow from `self`, so none is left.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// The session's shared page.
pub struct SessionMemory {
    map: SharedMemory,
    /// Whether the engine has to handle processes that come and go at once. That is so if nothing
    /// else reports them to the sampler, and once the run waits for their ends. Otherwise the next
    /// pass, at most 10 ms later, is soon enough: waking the engine twice for each process of a
    /// build cost more than its work did.
    pub eager: AtomicBool,
}

impl SessionMemory {
    /// Creates a page and its file.
    pub fn new() -> io::Result<(SessionMemory, OwnedFd)> {
        let fd = sys::memfd("tprof-session", SESSION_BYTES)?;
        sys::reserve(&fd, 0, SESSION_BYTES)?;
        let map = SharedMemory::new(&fd, SESSION_BYTES)?;
        let session = SessionMemory { map, eager: AtomicBool::new(false) };
        session.page().magic.store(REGION_MAGIC, Release);
        Ok((session, fd))
    }

    /// Returns the content of the page.
    pub fn page(&self) -> &SessionPage {
        self.map.view(0)
    }

    /// Wakes the engine.
    pub fn wake(&self) {
        let page = self.page();
        page.sleep.fetch_add(1, Release);
        sys::futex_wake(&page.sleep);
    }
}

/// The region of one target.
pub struct Region {
    map: SharedMemory,
}

/// The content of a slot in a chunk.
pub enum SlotRead {
    /// A record's two words.
    Record(u64, u64),
    /// The slot is not written (yet).
    Empty,
}

impl Region {
    /// Creates a region whose slots and chunks are all free, and its file.
    pub fn new() -> io::Result<(Region, OwnedFd)> {
        let fd = sys::memfd("tprof-region", REGION_BYTES)?;
        sys::reserve(&fd, 0, MODULES_OFFSET)?;
        // Every process uses the first thread's page and chunk. They are allocated here, while no
        // process waits. If there is no memory now, a process allocates them when it uses them.
        let _ = sys::reserve(&fd, SLOTS_OFFSET, size_of::<ThreadSlot>());
        let _ = sys::reserve(&fd, SMALL_OFFSET, SMALL_BYTES);
        let region = Region { map: SharedMemory::new(&fd, REGION_BYTES)? };
        for (offset, words) in [
            (SLOT_BITMAP_OFFSET, SLOT_WORDS),
            (SMALL_BITMAP_OFFSET, SMALL_WORDS),
            (LARGE_BITMAP_OFFSET, LARGE_WORDS),
        ] {
            for word in 0..words {
                region.map.word(offset + word * 8).store(u64::MAX, Relaxed);
            }
        }
        region.header().magic.store(REGION_MAGIC, Release);
        region.header().version.store(tprof_wire::WIRE_VERSION, Release);
        Ok((region, fd))
    }

    /// Returns the region's header.
    pub fn header(&self) -> &RegionHeader {
        self.map.view(0)
    }

    /// Whether the target computes unwind rows itself, without a table.
    pub fn finds_rows(&self) -> bool {
        self.header().finds_rows.load(Relaxed) != 0
    }

    /// Returns a thread slot by index.
    pub fn slot(&self, index: usize) -> &ThreadSlot {
        assert!(index < MAX_THREADS);
        self.map.view(SLOTS_OFFSET + index * size_of::<ThreadSlot>())
    }

    /// Returns an entry of the module table.
    pub fn module(&self, index: usize) -> &ModuleRange {
        assert!(index < MAX_MODULES);
        self.map.view(MODULES_OFFSET + index * size_of::<ModuleRange>())
    }

    /// Returns a word of the slot bitmap, in which set bits are free slots.
    pub fn free_slots(&self, word: usize) -> u64 {
        assert!(word < SLOT_WORDS);
        self.map.word(SLOT_BITMAP_OFFSET + word * 8).load(Acquire)
    }

    /// Frees a thread slot.
    pub fn free_slot(&self, index: usize) {
        assert!(index < MAX_THREADS);
        self.map.word(SLOT_BITMAP_OFFSET + index / 64 * 8).fetch_or(1 << (index % 64), Release);
    }

    /// Frees a chunk, and clears the part of it that was used.
    pub fn free_chunk(&self, chunk: ChunkRef, used: usize) {
        let Some((offset, bytes)) = chunk.place() else { return };
        self.map.zero(offset, used.min(bytes));
        let (bitmap, index) = if (chunk.0 as usize) <= SMALL_CHUNKS {
            (SMALL_BITMAP_OFFSET, chunk.0 as usize - 1)
        } else {
            (LARGE_BITMAP_OFFSET, chunk.0 as usize - 1 - SMALL_CHUNKS)
        };
        self.map.word(bitmap + index / 64 * 8).fetch_or(1 << (index % 64), Release);
    }

    /// Returns the `next` word of the chunk at `base`.
    #[inline(always)]
    pub fn chunk_next(&self, base: usize) -> u64 {
        self.map.word(base).load(Acquire)
    }

    /// Returns the slots in a byte range of the region, two words each.
    #[inline(always)]
    pub fn slots(&self, from: usize, to: usize) -> &[[AtomicU64; 2]] {
        assert!(from <= to && to <= REGION_BYTES && from.is_multiple_of(SLOT_BYTES));
        // SAFETY: the assertion above checks bounds and alignment. The slots are atomics, which
        // another process may change.
        unsafe {
            std::slice::from_raw_parts(
                self.map.at.as_ptr().add(from).cast(),
                (to - from) / SLOT_BYTES,
            )
        }
    }

    /// Reads the slot at a byte offset of the region.
    #[inline(always)]
    pub fn read(&self, at: usize) -> SlotRead {
        let word0 = self.map.word(at).load(Acquire);
        if word0 == 0 {
            SlotRead::Empty
        } else {
            SlotRead::Record(word0, self.map.word(at + 8).load(Relaxed))
        }
    }

    /// Reads the payload of an extended record that begins at `at` into `out`.
    pub fn payload(&self, at: usize, slots: usize, out: &mut Vec<u64>) {
        out.clear();
        for word in 0..(slots - 1) * SLOT_BYTES / 8 {
            out.push(self.map.word(at + SLOT_BYTES + word * 8).load(Relaxed));
        }
    }
}

/// The unwind tables that all targets map.
pub struct Tables {
    /// The file is written and not mapped, so the kernel need not clear a page before it is filled.
    file: File,
    used: usize,
}

impl Tables {
    /// Creates an empty file for tables.
    pub fn new() -> io::Result<(Tables, OwnedFd)> {
        let fd = sys::memfd("tprof-unwind", TABLES_BYTES)?;
        let file = File::from(fd.try_clone()?);
        Ok((Tables { file, used: 64 }, fd))
    }
}

impl crate::modules::TableStore for Tables {
    fn append(&mut self, bytes: &[u8]) -> Option<u64> {
        let at = self.used;
        let end = at.checked_add(bytes.len())?;
        if end > TABLES_BYTES {
            return None;
        }
        self.file.write_all_at(bytes, at as u64).ok()?;
        self.used = end.next_multiple_of(8);
        std::sync::atomic::fence(Release);
        Some(at as u64)
    }
}
