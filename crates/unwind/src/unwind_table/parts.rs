//! Splits a large module into parts, whose unwind tables are compiled separately.
//!
//! PyTorch loads 57 MB of frame information, but its stacks are in a few percent of its code. The
//! binary search table next to `.eh_frame` lists the functions in order of address and tells where
//! the description of each one is. A part is a range of entries in this table, and only their
//! descriptions are read. The rows of a part are the same as those of the whole module.

use super::cached_rows::RowSpan;
use super::from_module::{compile_section, mark_entry};
use super::search::{SearchTable, Window};
use super::table::{UnwindError, UnwindTable};
use std::collections::HashMap;
use tprof_symbols::elf::{Elf, u32_at};

/// Number of functions in a part, and largest number of parts of a module. A target's module table
/// has 2,048 entries, and compiling a part of 1,024 functions takes 0.4 ms.
const FUNCTIONS: u64 = 1024;
const MAX_PARTS: u64 = 256;
/// Number of descriptions, spread over the module, that are checked for the form that can be
/// compiled in parts. Some are enough, because a linker writes all of them in one form. Each check
/// is a read, which may be from disk.
const CHECKED: u64 = 8;

/// A part of a module.
#[derive(Clone, Debug)]
pub struct ModulePart {
    /// First ELF address that its rows are for. They reach to the first address of the next part.
    pub start: u64,
    /// One past its last ELF address.
    pub end: u64,
    /// The entries in the search table: the first, and one past the last.
    entries: (u64, u64),
}

impl ModulePart {
    /// Returns the range that identifies its rows in the cache.
    pub fn span(&self) -> RowSpan {
        RowSpan { addresses: (self.start, self.end), entries: self.entries }
    }
}

/// Returns the parts of a module in order of address. Empty if the module must be compiled as a
/// whole, because it is small or has frame information outside the search table.
pub fn parts(elf: &Elf) -> Vec<ModulePart> {
    found_parts(elf).unwrap_or_default()
}

fn found_parts(elf: &Elf) -> Option<Vec<ModulePart>> {
    let table = SearchTable::of(elf)?;
    if elf.sections().iter().any(|s| s.name == ".debug_frame" && s.has_contents()) {
        return None;
    }
    let count = (table.count / FUNCTIONS).min(MAX_PARTS);
    if count < 2 {
        return None;
    }
    let first = |part: u64| part * table.count / count;
    let mut window = Window::default();
    let mut starts = Vec::with_capacity(count as usize);
    for part in 0..count {
        let at = first(part);
        let (start, description) = *table.entries(elf, (at, at + 1)).ok()?.first()?;
        if part % count.div_ceil(CHECKED) == 0 {
            window.description(elf, description, start)?;
        }
        starts.push(start);
    }
    if !starts.is_sorted_by(|a, b| a < b) {
        return None;
    }
    let ends = starts.iter().skip(1).copied().chain([u64::MAX]);
    let spans = starts.iter().zip(ends).zip(0..);
    let part = |((start, end), at): ((&u64, u64), u64)| ModulePart {
        start: if at == 0 { 0 } else { *start },
        end,
        entries: (first(at), first(at + 1)),
    };
    Some(spans.map(part).collect())
}

/// Compiles a part of a module.
pub fn compile_part(elf: &Elf, part: &ModulePart) -> Result<UnwindTable, UnwindError> {
    let empty = |why| Ok(UnwindTable { empty: Some(why), ..UnwindTable::default() });
    let Some(table) = SearchTable::of(elf) else { return empty("the file has changed") };
    let entries = table.entries(elf, part.entries)?;
    let Some((_, base)) = entries.iter().min_by_key(|(_, description)| *description) else {
        return empty("the module has no frame information");
    };
    let mut section = PartSection { base: *base, bytes: Vec::new(), shared: HashMap::new() };
    let mut window = Window::default();
    for (start, description) in &entries {
        // Descriptions of another form get no rows.
        let Some((bytes, shared)) = window.description(elf, *description, *start) else { continue };
        let _ = section.add(bytes, shared, *start, (elf, &mut window));
    }
    let mut rows = compile_section(&section.bytes, section.base)?;
    if (part.start..part.end).contains(&elf.entry()) {
        mark_entry(&mut rows, elf.entry());
    }
    Ok(rows)
}

/// The content of a section `.eh_frame` with only some of a module's descriptions.
struct PartSection {
    /// ELF address of its first byte.
    base: u64,
    bytes: Vec<u8>,
    /// New offsets of the entries that descriptions refer to, by their ELF addresses.
    shared: HashMap<u64, u64>,
}

impl PartSection {
    /// Appends a description, and the entry that it refers to if that isn't in the section yet.
    /// Adapts the addresses in the description to its new place.
    fn add(
        &mut self,
        mut bytes: Vec<u8>,
        shared: u64,
        start: u64,
        (elf, window): (&Elf, &mut Window),
    ) -> Option<()> {
        let shared = match self.shared.get(&shared) {
            Some(at) => *at,
            None => {
                let entry = window.entry(elf, shared).filter(|bytes| u32_at(bytes, 4) == 0)?;
                let at = self.bytes.len() as u64;
                self.bytes.extend_from_slice(&entry);
                self.shared.insert(shared, at);
                at
            }
        };
        let at = self.bytes.len() as u64;
        let back = u32::try_from(at + 4 - shared).ok()?;
        let begin = start.wrapping_sub(self.base.wrapping_add(at + 8)).cast_signed();
        bytes.get_mut(4..8)?.copy_from_slice(&back.to_le_bytes());
        bytes.get_mut(8..12)?.copy_from_slice(&i32::try_from(begin).ok()?.to_le_bytes());
        self.bytes.extend_from_slice(&bytes);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind_table::compile_elf;
    use std::path::Path;
    use tprof_wire::unwind::Row;

    #[test]
    fn parts_have_the_same_rows_as_the_whole_module() {
        let elf = Elf::open(Path::new("/proc/self/exe")).unwrap();
        let whole = compile_elf(&elf).unwrap();
        let parts = parts(&elf);
        assert!(parts.len() > 1, "this program has {} parts", parts.len());
        let mut met = 0;
        for (index, part) in parts.iter().enumerate() {
            assert_eq!(part.end, parts.get(index + 1).map_or(u64::MAX, |next| next.start));
            let rows = compile_part(&elf, part).unwrap();
            let inside = |pc: &&u32| (part.start..part.end).contains(&u64::from(**pc));
            for pc in whole.pcs.iter().filter(inside) {
                let pc = u64::from(*pc);
                assert_eq!(rows.row_at(pc), whole.row_at(pc), "{pc:#x} in part {index}");
                met += usize::from(rows.row_at(pc) != Row::NONE);
            }
        }
        assert!(met > 1000, "{met}");
    }
}
