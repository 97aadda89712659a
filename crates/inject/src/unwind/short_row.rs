//! Stores an unwind row in [`ROW_BITS`] bits, so that one word has space for a row and its key.

use tprof_wire::unwind::{Row, RowKind};

/// Used as the row of code whose table doesn't exist yet. Such a row is never cached.
pub const NOT_READY: u64 = 1 << 63;

/// Number of bits of a [`ShortRow`].
pub const ROW_BITS: u32 = 25;

/// A row as the memo stores it. From the lowest bit on, it has: a bit that is always set; the kind;
/// whether the frame pointer was saved; an eighth of the distance in bytes from the base register
/// up to the CFA; an eighth of the distance from the CFA down to the saved frame pointer. A row
/// that doesn't fit has the kind [`ShortRow::LONG`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ShortRow(pub u64);

impl ShortRow {
    /// Kind of a row that doesn't fit, so that it must be looked up in the tables.
    pub const LONG: u64 = 7;
    /// Kind of the row of code whose table doesn't exist yet.
    pub const NOT_READY: u64 = 6;

    const fn of_kind(kind: u64) -> ShortRow {
        ShortRow(1 | kind << 1)
    }

    /// Shortens a row of a table.
    pub const fn new(row: Row) -> ShortRow {
        if row.0 == NOT_READY {
            return ShortRow::of_kind(ShortRow::NOT_READY);
        }
        let (kind, cfa, below) = (row.kind(), row.cfa_offset(), -row.fp_offset());
        if kind != RowKind::Sp as u64 && kind != RowKind::Fp as u64 {
            return ShortRow::of_kind(kind);
        }
        // Both distances must be multiples of 8. Their eighths have 12 and 8 bits.
        if cfa & !(0xfff << 3) != 0 || below & !(0xff << 3) != 0 {
            return ShortRow::of_kind(ShortRow::LONG);
        }
        let saves = row.saves_fp() as u64;
        ShortRow(1 | kind << 1 | saves << 4 | (cfa as u64 >> 3) << 5 | (below as u64 >> 3) << 17)
    }

    /// The kind: a [`RowKind`], [`ShortRow::LONG`] or [`ShortRow::NOT_READY`].
    #[inline(always)]
    pub const fn kind(self) -> u64 {
        self.0 >> 1 & 7
    }

    /// The same as [`Row::saves_fp`].
    #[inline(always)]
    pub const fn saves_fp(self) -> bool {
        self.0 & 1 << 4 != 0
    }

    /// The same as [`Row::cfa_offset`].
    #[inline(always)]
    pub const fn cfa_offset(self) -> usize {
        (self.0 >> 2 & 0xfff << 3) as usize
    }

    /// The same as [`Row::fp_offset`].
    #[inline(always)]
    pub const fn fp_offset(self) -> isize {
        -((self.0 >> 14 & 0xff << 3) as isize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_row_equals_its_row_or_is_marked_as_long() {
        for kind in [RowKind::None, RowKind::Sp, RowKind::Fp, RowKind::End, RowKind::Signal] {
            for cfa in [-8, 0, 8, 12, 16, 4095 * 8, 4096 * 8, 134_217_720] {
                for fp in [None, Some(8), Some(0), Some(-16), Some(-20), Some(-2040), Some(-2048)] {
                    let row = Row::new(kind, cfa, fp).unwrap();
                    let short = ShortRow::new(row);
                    assert_eq!(short.0 >> ROW_BITS, 0);
                    let has_place = matches!(kind, RowKind::Sp | RowKind::Fp);
                    if short.kind() == ShortRow::LONG || !has_place {
                        assert!(has_place || short.kind() == kind as u64, "{row:?}");
                        continue;
                    }
                    assert_eq!(short.kind(), kind as u64, "{row:?}");
                    assert_eq!(short.cfa_offset() as i64, cfa, "{row:?}");
                    assert_eq!(short.saves_fp(), fp.is_some(), "{row:?}");
                    assert_eq!(short.fp_offset() as i64, fp.unwrap_or(0), "{row:?}");
                }
            }
        }
        let usual = ShortRow::new(Row::new(RowKind::Fp, 16, Some(-16)).unwrap());
        assert_eq!((usual.cfa_offset(), usual.fp_offset()), (16, -16));
        assert_eq!(ShortRow::new(Row(NOT_READY)).kind(), ShortRow::NOT_READY);
    }
}
