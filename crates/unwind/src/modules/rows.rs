//! Looks up unwind rows of one module for the sampler, and compiles a function's rows when they are
//! first needed.
//!
//! The sampler needs the rows of only a few functions per module. The binary search table next to
//! `.eh_frame` tells where the description of each function is, so even a library of a gigabyte
//! takes only a small read per function. A module without such a table is compiled as a whole.

use crate::unwind_table::{self, SearchTable, UnwindTable, Window};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use tprof_cfi::ENTRY_BYTES;
use tprof_symbols::elf::{Elf, u32_at};
use tprof_wire::unwind::Row;

/// Largest number of functions in a search table. The table of libtorch_cuda has a million.
const MAX_FUNCTIONS: u64 = 8 << 20;

/// The unwind rows of one module.
pub struct ModuleRows {
    elf: Elf,
    index: Index,
    /// The compiled descriptions of functions, by index in the search table.
    functions: HashMap<usize, UnwindTable>,
    descriptions: FrameDescriptions,
}

enum Index {
    /// The search table: the first address of each function, and the address of its description.
    Sorted(Vec<(u64, u64)>),
    /// The compiled table of the whole module, which has no usable search table.
    Whole(UnwindTable),
}

impl ModuleRows {
    /// Returns the rows of an open file. Nothing is compiled yet if the file has a search table.
    pub fn new(elf: Elf) -> ModuleRows {
        let index = match sorted(&elf) {
            Some(entries) => Index::Sorted(entries),
            None => Index::Whole(unwind_table::compile_elf(&elf).unwrap_or_default()),
        };
        ModuleRows {
            elf,
            index,
            functions: HashMap::new(),
            descriptions: FrameDescriptions::default(),
        }
    }

    /// Returns the unwind row for an ELF address.
    pub fn row_at(&mut self, pc: u64) -> Row {
        let entries = match &self.index {
            Index::Whole(table) => return table.row_at(pc),
            Index::Sorted(entries) => entries,
        };
        let after = entries.partition_point(|(start, _)| *start <= pc);
        let row = match after.checked_sub(1) {
            None => Row::NONE,
            Some(at) => {
                let description = entries[at].1;
                let mut compile = || self.descriptions.compile(&self.elf, description);
                let table =
                    self.functions.entry(at).or_insert_with(|| compile().unwrap_or_default());
                table.row_at(pc)
            }
        };
        let entry = self.elf.entry();
        if row == Row::NONE && entry != 0 && (entry..entry + ENTRY_BYTES).contains(&pc) {
            return Row::END;
        }
        row
    }
}

/// Returns the entries of the binary search table; `None` if the module has none in the form that
/// all linkers write.
fn sorted(elf: &Elf) -> Option<Vec<(u64, u64)>> {
    let table = SearchTable::of(elf).filter(|table| table.count <= MAX_FUNCTIONS)?;
    let entries = table.entries(elf, (0, table.count)).ok()?;
    (!entries.is_empty() && entries.is_sorted_by_key(|e| e.0)).then_some(entries)
}

#[derive(Default)]
struct FrameDescriptions {
    window: Window,
    /// Entries that descriptions refer to, by address. Many functions share an entry, and a module
    /// has few.
    shared: HashMap<u64, Vec<u8>>,
}

impl FrameDescriptions {
    /// Compiles one description. It builds a small section from the description and the entry that
    /// the description refers to.
    fn compile(&mut self, elf: &Elf, address: u64) -> Option<UnwindTable> {
        let mut description = self.window.entry(elf, address)?;
        let distance = u64::from(u32_at(&description, 4));
        let shared = (address + 4).checked_sub(distance)?;
        let shared = match self.shared.entry(shared) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(self.window.entry(elf, shared)?),
        };
        let mut section = shared.clone();
        let shared = section.len() as u32;
        description[4..8].copy_from_slice(&(shared + 4).to_le_bytes());
        section.extend_from_slice(&description);
        let base = address.wrapping_sub(u64::from(shared));
        unwind_table::compile_section(&section, base).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn rows_of_single_functions_agree_with_the_whole_table() {
        let elf = Elf::open(Path::new("/proc/self/exe")).unwrap();
        let whole = unwind_table::compile_elf(&elf).unwrap();
        let mut single = ModuleRows::new(elf);
        assert!(matches!(single.index, Index::Sorted(_)), "linkers write a search table");
        let step = (whole.pcs.len() / 2000).max(1);
        let mut met = 0;
        for (at, pc) in whole.pcs.iter().enumerate().step_by(step) {
            let pc = u64::from(*pc);
            assert_eq!(single.row_at(pc), whole.rows[at], "{pc:#x}");
            met += usize::from(whole.rows[at] != Row::NONE);
        }
        assert!(met > 100, "{met}");
    }
}
