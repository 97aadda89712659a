//! Unwind rows of one module, compiled function by function as they are met.
//!
//! A sampler meets few functions of a module: the binary search table beside
//! `.eh_frame` leads to the description of each, so that a library of a
//! gigabyte costs two small reads a function. Modules without such a table are
//! compiled whole.

use crate::elf::{Elf, PT_GNU_EH_FRAME, u32_at};
use crate::unwind_table::{self, UnwindTable};
use std::collections::HashMap;
use tprof_wire::unwind::Row;

/// Largest search table that is read; libtorch_cuda's has 8 MB.
const MAX_TABLE: u64 = 64 << 20;
/// Longest description of one function or of what functions share.
const MAX_ENTRY: u64 = 64 << 10;
/// Code at the entry point that nothing describes has no caller; it is no longer.
const ENTRY_BYTES: u64 = 96;

/// See the module.
pub struct ModuleRows {
    elf: Elf,
    index: Index,
    /// Compiled descriptions, by place in the index.
    functions: HashMap<usize, UnwindTable>,
}

enum Index {
    /// First address of each function, and the address of its description.
    Sorted(Vec<(u64, u64)>),
    /// Everything, compiled.
    Whole(UnwindTable),
}

impl ModuleRows {
    /// Rows of an open file.
    pub fn new(elf: Elf) -> ModuleRows {
        let index = match sorted(&elf) {
            Some(entries) => Index::Sorted(entries),
            None => Index::Whole(unwind_table::compile_elf(&elf).unwrap_or_default()),
        };
        ModuleRows { elf, index, functions: HashMap::new() }
    }

    /// The row for an ELF address.
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
                let elf = &self.elf;
                let table = self
                    .functions
                    .entry(at)
                    .or_insert_with(|| compile(elf, description).unwrap_or_default());
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

/// Reads the binary search table, if it is of the form that all linkers write.
fn sorted(elf: &Elf) -> Option<Vec<(u64, u64)>> {
    if !elf.is_64() || elf.machine() != crate::elf::EM_X86_64 {
        return None;
    }
    let segment = elf.segments().iter().find(|s| s.kind == PT_GNU_EH_FRAME)?;
    if segment.file_bytes > MAX_TABLE {
        return None;
    }
    let bytes = elf.read(segment.offset, segment.file_bytes).ok()?;
    // Version 1; pointer relative to itself, count as four bytes, entries of two
    // signed words relative to the table.
    if *bytes.first_chunk::<4>()? != [1, 0x1b, 0x03, 0x3b] {
        return None;
    }
    let count = u32_at(&bytes, 8) as usize;
    let entries = bytes.get(12..12 + count.checked_mul(8)?)?;
    let at = |word: u32| segment.address.wrapping_add_signed(i64::from(word as i32));
    let entries: Vec<_> =
        entries.chunks_exact(8).map(|e| (at(u32_at(e, 0)), at(u32_at(e, 4)))).collect();
    (!entries.is_empty() && entries.is_sorted_by_key(|e| e.0)).then_some(entries)
}

/// Compiles one description: a section of its own is made of it and of the
/// entry that it refers to.
fn compile(elf: &Elf, address: u64) -> Option<UnwindTable> {
    let entry = |address: u64| {
        let offset = elf.offset_of(address)?;
        let len = u64::from(u32_at(&elf.read(offset, 4).ok()?, 0));
        // The extended form of lengths is not met in practice.
        (len > 4 && len < MAX_ENTRY).then(|| elf.read(offset, len + 4).ok())?
    };
    let mut description = entry(address)?;
    let distance = u64::from(u32_at(&description, 4));
    let mut section = entry((address + 4).checked_sub(distance)?)?;
    let shared = section.len() as u32;
    description[4..8].copy_from_slice(&(shared + 4).to_le_bytes());
    section.extend_from_slice(&description);
    let base = address.wrapping_sub(u64::from(shared));
    unwind_table::compile_section(&section, base).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn rows_of_single_functions_are_those_of_the_whole_module() {
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
