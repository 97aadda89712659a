//! Entry points for the fuzz targets in `fuzz/`, which read the bytes of peers that may write
//! anything.
//!
//! What they call is private, and stays so: these functions exist only with the feature `fuzzing`,
//! which nothing but the fuzz targets turns on. It is a feature and not `cfg(fuzzing)`, because
//! compiler flags would compile every dependency once more just to check the targets.

mod ring;

use crate::unwind_table;

pub use crate::cpu::{RecordsRead, read_records};
pub use ring::{RingsRead, read_rings};

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
