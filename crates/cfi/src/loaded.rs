//! Finds the unwind row of one address in memory that a loader has mapped. The binary search table
//! next to `.eh_frame` (`.eh_frame_hdr`) leads to the description of the function. The description
//! is then run up to the address.

use crate::description::{CfiEntry, code_at, entry_at, run};
use crate::shared::SharedEntry;
use core::ops::ControlFlow;
use tprof_wire::unwind::Row;

/// Number of bytes in the search table's header.
const HEAD: usize = 12;
const ENTRY: usize = 8;
/// The only form of header that linkers write: version 1, a pointer relative to itself, a count of
/// four bytes, and entries of two signed words relative to the table.
const FORM: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
/// Maximum length in bytes of a description of a function that is run.
const MAX_BYTES: usize = 64 << 10;

/// Maximum length in bytes of code at the entry point that has no unwind information and no caller
/// (in `ld.so` and musl's `crt1.o`).
pub const ENTRY_BYTES: u64 = 96;

/// The unwind information of a loaded object.
#[derive(Clone, Copy, Debug)]
pub struct LoadedFrames<'a> {
    /// The segment that contains `.eh_frame`.
    bytes: &'a [u8],
    address: u64,
    /// Address of `.eh_frame_hdr`.
    table: u64,
    entry: u64,
    entries: &'a [u8],
}

impl<'a> LoadedFrames<'a> {
    /// Makes a view of an object's unwind information. `header` has the bytes from `.eh_frame_hdr`
    /// on, which begins at the address `table`. `entry` is the address of the entry point.
    /// `segment` returns the mapped bytes around an address, and the address of the first of them.
    /// (`.eh_frame` may be in another segment than its header, since some linkers make it
    /// writable.) Returns `None` if the table has another form than `FORM`.
    pub fn new(
        header: &'a [u8],
        table: u64,
        entry: u64,
        segment: impl FnOnce(u64) -> Option<(&'a [u8], u64)>,
    ) -> Option<LoadedFrames<'a>> {
        let (form, rest) = header.split_first_chunk::<4>()?;
        let to_frames = u32_at(rest, 0)?.cast_signed();
        let count = u32_at(rest, 4)? as usize;
        let entries = rest.get(HEAD - form.len()..)?.get(..count.checked_mul(ENTRY)?)?;
        if *form != FORM {
            return None;
        }
        let frames = table.wrapping_add(form.len() as u64).wrapping_add_signed(to_frames.into());
        let (bytes, address) = segment(frames)?;
        Some(LoadedFrames { bytes, address, table, entry, entries })
    }

    /// The row of an address; `None` if no description covers the address, or if the description
    /// has a form that compilers don't write.
    pub fn row_at(&self, pc: u64) -> Option<Row> {
        let place = self.description_of(pc)?;
        let at = usize::try_from(place.checked_sub(self.address)?).ok()?;
        let (CfiEntry::Description(shared), end) = entry_at(self.bytes, at)? else { return None };
        let description = self.bytes.get(at..end).filter(|bytes| bytes.len() <= MAX_BYTES)?;
        let (start, code_end) = code_at(description, place)?;
        if !(start..code_end).contains(&pc) {
            let is_entry = (self.entry..self.entry.saturating_add(ENTRY_BYTES)).contains(&pc);
            return (is_entry && code_end <= self.entry).then_some(Row::END);
        }
        let (CfiEntry::Shared, shared_end) = entry_at(self.bytes, shared)? else { return None };
        let shared = SharedEntry::read(self.bytes.get(shared..shared_end)?)?;
        let mut found = None;
        let run = run(description, place, &shared, |from, row| {
            if from > pc {
                return ControlFlow::Break(());
            }
            found = Some(row);
            ControlFlow::Continue(())
        });
        run.and(found)
    }

    /// The address of the description of the last function that begins at or before `pc`.
    fn description_of(&self, pc: u64) -> Option<u64> {
        let address = |word: u32| self.table.wrapping_add_signed(i64::from(word.cast_signed()));
        let start = |index: usize| Some(address(u32_at(self.entries, index * ENTRY)?));
        let (mut low, mut high) = (0, self.entries.len() / ENTRY);
        // Entries before `low` begin at or before `pc`. Entries from `high` on begin after it.
        while low < high {
            let middle = low.midpoint(high);
            match start(middle)? <= pc {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Some(address(u32_at(self.entries, low.checked_sub(1)? * ENTRY + 4)?))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}
