//! The compiled unwind rows of a module, and their encoding for targets.

use tprof_symbols::elf::ElfError;
use tprof_wire::unwind::{Row, TableHeader, table_bytes};

/// The unwind rows of one module, in order of address. Row `i` is valid from `pcs[i]` up to `pcs[i
/// + 1]`. The pcs are ELF addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnwindTable {
    /// First pc of each row, in the same order as `rows`.
    pub pcs: Vec<u32>,
    /// The rows, each valid from its pc on.
    pub rows: Vec<Row>,
    /// The reason why the table has no rows; `None` if it has rows.
    pub empty: Option<&'static str>,
}

/// The reason why a module's frame information could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum UnwindError {
    /// The module could not be read.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The module has more rows than fit into the tables file.
    #[error("has too many rows")]
    TooLarge,
}

impl UnwindTable {
    /// Returns the row for an ELF address. The address of a caller must be its return address minus
    /// one.
    pub fn row_at(&self, pc: u64) -> Row {
        let Ok(pc) = u32::try_from(pc) else {
            return Row::NONE;
        };
        let next = self.pcs.partition_point(|start| *start <= pc);
        next.checked_sub(1).and_then(|i| self.rows.get(i)).copied().unwrap_or(Row::NONE)
    }

    /// Appends a row that begins at `pc`, which must not be below the pc of the last row.
    pub(super) fn push(&mut self, pc: u32, row: Row) {
        if self.pcs.last() == Some(&pc) {
            self.pcs.pop();
            self.rows.pop();
        }
        if self.rows.last() != Some(&row) {
            self.pcs.push(pc);
            self.rows.push(row);
        }
    }
}

/// Appends the table in the layout of [`tprof_wire::unwind`].
pub fn encode(table: &UnwindTable, out: &mut Vec<u8>) {
    let len = table.pcs.len().min(table.rows.len());
    out.reserve(table_bytes(len));
    out.extend((len as u32).to_ne_bytes());
    out.extend(tprof_wire::WIRE_VERSION.to_ne_bytes());
    for pc in &table.pcs[..len] {
        out.extend(pc.to_ne_bytes());
    }
    let padding = (len * 4).next_multiple_of(8) - len * 4;
    out.extend(&[0; 8][..padding]);
    for row in &table.rows[..len] {
        out.extend(row.0.to_ne_bytes());
    }
}

const _: () = assert!(size_of::<TableHeader>() == 8);
