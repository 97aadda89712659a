//! The layout of unwind tables, which the collector compiles from a module's `.eh_frame` and the
//! target reads. Each row of a table says for a range of code how to find the caller's frame.
//!
//! A table is a [`TableHeader`], then `len` sorted `u32` pcs, padded to 8 bytes, then `len` `u64`
//! [`Row`]s. A pc is the module-relative start of a row's range, and the range ends at the next pc.
//! Gaps between functions have rows of kind [`RowKind::None`]. A table is never changed or moved
//! once it is published.

/// Head of a table in the tables file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TableHeader {
    /// Number of rows.
    pub len: u32,
    /// The collector's [`crate::WIRE_VERSION`].
    pub version: u32,
}

/// How to find the caller's frame.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// There is no unwind information here, so the stack ends as incomplete.
    None = 0,
    /// CFA = stack pointer + offset.
    Sp = 1,
    /// CFA = frame pointer + offset.
    Fp = 2,
    /// This is the outermost frame, so the stack is complete.
    End = 3,
    /// A signal trampoline: the caller's registers are in the `ucontext` at the stack pointer.
    Signal = 4,
}

/// A row in one word: `0..3 kind | 3 fp saved | 4..32 CFA offset | 32..64 offset of the saved fp`.
/// Both offsets are signed and in bytes. The saved frame pointer is at CFA + offset. The return
/// address is always at CFA - 8; code that stores it elsewhere has no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row(pub u64);

impl Row {
    /// The row of code without unwind information.
    pub const NONE: Row = Row(0);
    /// The row of the outermost frame.
    pub const END: Row = Row(RowKind::End as u64);
    /// The row of a signal trampoline.
    pub const SIGNAL: Row = Row(RowKind::Signal as u64);

    /// Packs a row; `None` if an offset does not fit.
    pub const fn new(kind: RowKind, cfa_offset: i64, fp_offset: Option<i64>) -> Option<Row> {
        if cfa_offset < -(1 << 27) || cfa_offset >= 1 << 27 {
            return None;
        }
        let (saved, fp) = match fp_offset {
            None => (0, 0),
            Some(o) if o >= i32::MIN as i64 && o <= i32::MAX as i64 => (1, o),
            Some(_) => return None,
        };
        Some(Row(kind as u64
            | saved << 3
            | (cfa_offset as u64 & 0xfff_ffff) << 4
            | (fp as u64) << 32))
    }
    /// The kind, as a number (see [`RowKind`]).
    #[inline(always)]
    pub const fn kind(self) -> u64 {
        self.0 & 7
    }
    /// Whether the function has saved the caller's frame pointer.
    #[inline(always)]
    pub const fn saves_fp(self) -> bool {
        self.0 & 8 != 0
    }
    /// Bytes from the base register to the CFA.
    #[inline(always)]
    pub const fn cfa_offset(self) -> i64 {
        ((self.0 << 32) as i64) >> 36
    }
    /// Bytes from the CFA to the saved frame pointer.
    #[inline(always)]
    pub const fn fp_offset(self) -> i64 {
        (self.0 as i64) >> 32
    }
}

/// Bytes of a table with `len` rows.
pub const fn table_bytes(len: usize) -> usize {
    size_of::<TableHeader>() + (len * 4).next_multiple_of(8) + len * 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip() {
        for (kind, cfa, fp) in [
            (RowKind::Sp, 8, None),
            (RowKind::Sp, 134_217_720, Some(-16)),
            (RowKind::Fp, 16, Some(-16)),
            (RowKind::Fp, -8, Some(i32::MIN as i64)),
        ] {
            let row = Row::new(kind, cfa, fp).unwrap();
            assert_eq!(row.kind(), kind as u64);
            assert_eq!(row.cfa_offset(), cfa);
            assert_eq!(row.saves_fp(), fp.is_some());
            assert_eq!(row.fp_offset(), fp.unwrap_or(0));
        }
        assert_eq!(Row::new(RowKind::Sp, 1 << 27, None), None);
    }
}
