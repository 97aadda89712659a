//! Maps the memory that targets share with the collector. A target may write anything there at any
//! time, so every word is read once, atomically, and every index is checked here.
#![allow(unsafe_code)] // views of mapped memory

pub mod calibrate;
pub mod clock;
mod module_table;

pub use module_table::{publish, take_marks};

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use tprof_os::{proc, sys};
use tprof_ring::{ExtRecord, Words};
use tprof_wire::record::SLOT_BYTES;
use tprof_wire::region::*;

/// A shared mapping of a sealed file.
pub struct SharedMemory {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping isn't bound to a thread: any thread may use and unmap it.
unsafe impl Send for SharedMemory {}
// SAFETY: shared references allow only atomic accesses and `zero`. Only the engine's thread calls
// `zero`, for chunks that no other thread of the collector reads.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Maps the whole of `fd`, which is `bytes` long and sealed.
    pub fn new(fd: &OwnedFd, bytes: usize) -> io::Result<SharedMemory> {
        // SAFETY: the kernel chooses a free address for the mapping, so no other memory is
        // affected.
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

    /// Returns the `T` at `offset`. Callers pass only types that consist of atomics.
    fn view<T>(&self, offset: usize) -> &T {
        assert!(offset + size_of::<T>() <= self.bytes && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: the assertion checks bounds and alignment. `T` consists of atomics, as callers of
        // this private function ensure. So every content is valid, and another process may change
        // it.
        unsafe { &*self.at.as_ptr().add(offset).cast::<T>() }
    }

    /// Returns the 8-byte word at `offset`.
    #[inline(always)]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.bytes && offset & 7 == 0);
        // SAFETY: the assertion above checks bounds and alignment, and the mapping lives as long as
        // `self`.
        unsafe { &*self.at.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// Clears a range of bytes.
    fn zero(&self, offset: usize, bytes: usize) {
        assert!(offset + bytes <= self.bytes);
        // SAFETY: the assertion checks the bounds. Only the engine's thread accesses chunks, so no
        // other thread of this process reads the range. The target has given the range up; if it
        // writes there nevertheless, only its own records are damaged.
        unsafe { std::ptr::write_bytes(self.at.as_ptr().add(offset), 0, bytes) };
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: `new` mapped this range. All views borrow from `self`, so none exists any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// The session's shared page.
pub struct SessionMemory {
    map: SharedMemory,
    /// Whether the engine must handle attaching and ending processes at once. That is so if nothing
    /// else tells the sampler about processes, and when the run waits for processes to end.
    /// Otherwise the engine handles them in its next pass, at most 10 ms later. In a build, waking
    /// the engine twice per process would cost more than the engine's work for the process.
    pub eager: AtomicBool,
}

impl SessionMemory {
    /// Creates the page, and the file that processes map to see it.
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

/// The region of a target: the memory that one program image shares with the collector.
pub struct Region {
    map: SharedMemory,
}

/// Address space that no region may take from a collector whose address space is limited. It is for
/// the stacks of the collector's threads, the sampler's rings and the collector's data. A thread
/// that starts without any space left would end the whole program.
const KEPT_BYTES: u64 = 40 << 20;

/// Fails with `ENOMEM` if the address space is limited and has no room for another region.
pub fn check_room() -> io::Result<()> {
    let needed = REGION_BYTES as u64 + KEPT_BYTES;
    match proc::address_space_left().is_some_and(|left| left < needed) {
        true => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
        false => Ok(()),
    }
}

impl Region {
    /// Creates a region in which all slots and chunks are free, and the file that the process maps.
    pub fn new() -> io::Result<(Region, OwnedFd)> {
        check_room()?;
        let fd = sys::memfd("tprof-region", REGION_BYTES)?;
        sys::reserve(&fd, 0, MODULES_OFFSET)?;
        // Every process uses the first thread slot and the first chunk. Their memory is allocated
        // now, while no process waits for it. If that fails, the kernel allocates the memory when
        // the process uses it.
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

    /// Returns the thread slot with this index.
    pub fn slot(&self, index: usize) -> &ThreadSlot {
        assert!(index < MAX_THREADS);
        self.map.view(SLOTS_OFFSET + index * size_of::<ThreadSlot>())
    }

    /// Returns the entry of the module table with this index.
    pub fn module(&self, index: usize) -> &ModuleRange {
        assert!(index < MAX_MODULES);
        self.map.view(MODULES_OFFSET + index * size_of::<ModuleRange>())
    }

    /// Returns a word of the bitmap of thread slots. Set bits are free slots.
    pub fn free_slots(&self, word: usize) -> u64 {
        assert!(word < SLOT_WORDS);
        self.map.word(SLOT_BITMAP_OFFSET + word * 8).load(Acquire)
    }

    /// Frees a thread slot.
    pub fn free_slot(&self, index: usize) {
        assert!(index < MAX_THREADS);
        self.map.word(SLOT_BITMAP_OFFSET + index / 64 * 8).fetch_or(1 << (index % 64), Release);
    }

    /// Clears the first `used` bytes of a chunk and marks the chunk as free.
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

    /// Returns the slots between two byte offsets of the region. Each slot has two words.
    #[inline(always)]
    pub fn slots(&self, from: usize, to: usize) -> &[[AtomicU64; 2]] {
        assert!(from <= to && to <= REGION_BYTES && from.is_multiple_of(SLOT_BYTES));
        // SAFETY: the assertion checks bounds and alignment. The slots are atomics, so another
        // process may change them.
        unsafe {
            std::slice::from_raw_parts(
                self.map.at.as_ptr().add(from).cast(),
                (to - from) / SLOT_BYTES,
            )
        }
    }

    /// Copies the payload of an extended record into `out`.
    pub fn payload(&self, record: &ExtRecord, out: &mut Vec<u64>) {
        let words = (0..record.words).map(|n| self.map.word(record.payload + n * 8).load(Relaxed));
        out.clear();
        out.extend(words);
    }
}

impl Words for Region {
    #[inline(always)]
    fn word(&self, offset: usize) -> &AtomicU64 {
        self.map.word(offset)
    }
}

/// The file with unwind tables, which all targets map.
pub struct Tables {
    /// The file is written instead of mapped, so that the kernel need not clear each page first.
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

impl tprof_unwind::modules::TableStore for Tables {
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
