//! Finds the descriptions of single functions, by the binary search table next to `.eh_frame`. The
//! table lists the functions in order of address, and tells where the description of each one is.

use tprof_symbols::elf::{EM_X86_64, Elf, ElfError, PT_GNU_EH_FRAME, u32_at};

/// Bytes of the search table's head, and of an entry in the table.
const HEAD: u64 = 12;
const ENTRY: u64 = 8;
/// Bytes that are read at once, because the descriptions of neighbouring functions are usually
/// adjacent.
const WINDOW: u64 = 4096;
/// Largest size of a description, or of an entry that descriptions refer to, bytes.
const MAX_ENTRY: u64 = 64 << 10;

/// The binary search table of a module.
pub struct SearchTable {
    offset: u64,
    address: u64,
    /// Number of functions in the table.
    pub count: u64,
}

impl SearchTable {
    /// Opens the table of a module; `None` if the module has none in the form that all linkers
    /// write.
    pub fn of(elf: &Elf) -> Option<SearchTable> {
        if !elf.is_64() || elf.machine() != EM_X86_64 {
            return None;
        }
        let segment = elf.segments().iter().find(|s| s.kind == PT_GNU_EH_FRAME)?;
        let head = elf.read(segment.offset, HEAD).ok()?;
        // Version 1, a pointer relative to its own place, a count of four bytes, and entries of two
        // signed words relative to the table.
        if *head.first_chunk::<4>()? != [1, 0x1b, 0x03, 0x3b] {
            return None;
        }
        let count = u64::from(u32_at(&head, 8));
        let fits = HEAD + count * ENTRY <= segment.file_bytes;
        fits.then_some(SearchTable { offset: segment.offset, address: segment.address, count })
    }

    /// Returns for a range of entries the address of each function and the address of its
    /// description.
    pub fn entries(&self, elf: &Elf, (from, to): (u64, u64)) -> Result<Vec<(u64, u64)>, ElfError> {
        let bytes = elf.read(self.offset + HEAD + from * ENTRY, (to - from) * ENTRY)?;
        let at = |word: u32| self.address.wrapping_add_signed(i64::from(word.cast_signed()));
        let entry = |e: &[u8]| (at(u32_at(e, 0)), at(u32_at(e, 4)));
        Ok(bytes.chunks_exact(ENTRY as usize).map(entry).collect())
    }
}

/// The bytes of a file that were read last, which may contain what is needed next.
#[derive(Default)]
pub struct Window {
    offset: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn read(&mut self, elf: &Elf, offset: u64, len: u64) -> Option<&[u8]> {
        let holds = offset >= self.offset
            && offset.checked_add(len)? <= self.offset + self.bytes.len() as u64;
        if !holds {
            let whole = elf.len().checked_sub(offset)?;
            self.bytes = elf.read(offset, len.max(WINDOW).min(whole)).ok()?;
            self.offset = offset;
        }
        let at = (offset - self.offset) as usize;
        self.bytes.get(at..at + len as usize)
    }

    /// Returns the entry of `.eh_frame` at an ELF address, including its length.
    pub fn entry(&mut self, elf: &Elf, address: u64) -> Option<Vec<u8>> {
        let offset = elf.offset_of(address)?;
        let len = u64::from(u32_at(self.read(elf, offset, 4)?, 0));
        // Real files don't use the extended form of lengths.
        let len = (12..MAX_ENTRY).contains(&len).then_some(len + 4)?;
        self.read(elf, offset, len).map(<[u8]>::to_vec)
    }

    /// Returns the description of the function that begins at `start`, and the address of the entry
    /// that it refers to. `None` if its addresses have another form than compilers write.
    pub fn description(&mut self, elf: &Elf, address: u64, start: u64) -> Option<(Vec<u8>, u64)> {
        let bytes = self.entry(elf, address)?;
        let place = address.checked_add(8)?;
        let begin = place.wrapping_add_signed(i64::from(u32_at(&bytes, 8).cast_signed()));
        let shared = (address + 4).checked_sub(u64::from(u32_at(&bytes, 4)))?;
        (begin == start && shared != address + 4).then_some((bytes, shared))
    }
}
