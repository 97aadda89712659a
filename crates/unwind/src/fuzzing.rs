//! The entry point for a fuzz target in `fuzz/`.
//!
//! The functions that it calls stay private to the crate. This module exists only with the feature
//! `fuzzing`, which nothing but the fuzz target turns on. It is a feature and not `cfg(fuzzing)`, because compiler
//! flags would compile every dependency once more just to check the targets.

use crate::unwind_table;

/// Compiles a section `.eh_frame` that begins at an ELF address, and encodes the table. Returns the
/// number of its rows; `None` if it has too many.
pub fn compile_frames(section: &[u8], address: u64) -> Option<usize> {
    let table = unwind_table::compile_section(section, address).ok()?;
    assert_eq!(table.pcs.len(), table.rows.len());
    assert!(table.pcs.is_sorted(), "a reader searches the table by halves");
    let mut bytes = Vec::new();
    unwind_table::encode(&table, &mut bytes);
    Some(table.rows.len())
}
