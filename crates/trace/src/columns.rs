//! Builds the payload of a block, which consists of columns that describe themselves.
//!
//! A payload is the number of columns (u16), then a directory entry for each column (column id u16,
//! kind u8, encoding u8, values u32, stored bytes u32), then the columns' bytes in the same order.
//! A reader finds columns by id and skips the rest, so a later format can add columns to any table.
//!
//! Two bits of an id mark a companion of the column `id`. [`PRESENT`] tells for each row whether it
//! has a value. [`LENGTHS`] tells for each row how many values (or bytes) it has.

use crate::planes::{PlaneWriter, Word};

/// Marks a companion column of booleans: whether each row has a value.
pub(crate) const PRESENT: u16 = 0x8000;
/// Marks a companion column of numbers: how many values each row has.
pub(crate) const LENGTHS: u16 = 0x4000;

/// Bytes of a directory entry.
pub(crate) const ENTRY_BYTES: usize = 12;

/// The type of a column's values.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The values are unsigned integers.
    Unsigned = 1,
    /// The values are IEEE doubles, stored as their bits.
    Float = 2,
    /// The values are booleans.
    Boolean = 3,
    /// The values are bytes of UTF-8 text.
    Text = 4,
}

/// The encoding of values as bytes.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// The values as byte planes; see [`crate::planes`].
    Planes = 0,
    /// The first value (u64), then byte planes of the differences between each value and the one
    /// before.
    Rising = 1,
    /// Like `Rising`, but the differences are signed and folded: 0, -1, 1, -2, …
    Wandering = 2,
    /// Booleans, eight to a byte with the first in the lowest bit, as byte planes.
    Bits = 3,
}

/// Folds a signed difference into an unsigned number, which is small if the difference is small.
#[inline(always)]
pub(crate) fn fold(difference: u64) -> u64 {
    difference << 1 ^ ((difference as i64) >> 63) as u64
}

#[inline(always)]
pub(crate) fn unfold(folded: u64) -> u64 {
    folded >> 1 ^ (folded & 1).wrapping_neg()
}

/// Builds one block's payload.
pub(crate) struct BlockWriter<'a> {
    planes: &'a mut PlaneWriter,
    wide: &'a mut Vec<u64>,
    entries: Vec<u8>,
    data: Vec<u8>,
    /// Total size of the columns before encoding, bytes.
    pub raw_len: usize,
}

/// Buffers that the writer reuses for each block.
pub(crate) struct Encoder {
    planes: PlaneWriter,
    wide: Vec<u64>,
    entries: Vec<u8>,
    data: Vec<u8>,
}

impl Encoder {
    /// Creates an encoder whose buffers are empty.
    pub fn new() -> std::io::Result<Encoder> {
        Ok(Encoder {
            planes: PlaneWriter::new()?,
            wide: Vec::new(),
            entries: Vec::new(),
            data: Vec::new(),
        })
    }

    /// Appends a payload to `out`. Returns the size of its columns before encoding, bytes.
    pub fn payload(&mut self, out: &mut Vec<u8>, fill: impl FnOnce(&mut BlockWriter<'_>)) -> usize {
        self.entries.clear();
        self.data.clear();
        let mut block = BlockWriter {
            planes: &mut self.planes,
            wide: &mut self.wide,
            entries: std::mem::take(&mut self.entries),
            data: std::mem::take(&mut self.data),
            raw_len: 0,
        };
        fill(&mut block);
        let BlockWriter { entries, data, raw_len, .. } = block;
        out.extend_from_slice(&((entries.len() / ENTRY_BYTES) as u16).to_le_bytes());
        out.extend_from_slice(&entries);
        out.extend_from_slice(&data);
        (self.entries, self.data) = (entries, data);
        raw_len
    }
}

impl BlockWriter<'_> {
    fn column(&mut self, id: u16, kind: Kind, encoding: Encoding, values: usize, start: usize) {
        self.entries.extend_from_slice(&id.to_le_bytes());
        self.entries.extend_from_slice(&[kind as u8, encoding as u8]);
        self.entries.extend_from_slice(&(values as u32).to_le_bytes());
        self.entries.extend_from_slice(&((self.data.len() - start) as u32).to_le_bytes());
        self.raw_len += match kind {
            Kind::Unsigned | Kind::Float => values * 8,
            Kind::Boolean | Kind::Text => values,
        };
    }

    /// Adds a column of integers.
    pub fn integers<T: Word>(&mut self, id: u16, values: &[T]) {
        let start = self.data.len();
        self.planes.write(values, &mut self.data);
        self.column(id, Kind::Unsigned, Encoding::Planes, values.len(), start);
    }

    /// Adds a column of integers by their differences: `first`, then the difference to each
    /// following value, plain or `folded`.
    pub fn differences<T: Word>(&mut self, id: u16, first: u64, rest: &[T], folded: bool) {
        let start = self.data.len();
        self.data.extend_from_slice(&first.to_le_bytes());
        self.planes.write(rest, &mut self.data);
        let encoding = if folded { Encoding::Wandering } else { Encoding::Rising };
        self.column(id, Kind::Unsigned, encoding, rest.len() + 1, start);
    }

    /// Adds a column of booleans that are already packed into bytes.
    pub fn packed(&mut self, id: u16, bytes: &[u8], values: usize) {
        let start = self.data.len();
        self.planes.write(bytes, &mut self.data);
        self.column(id, Kind::Boolean, Encoding::Bits, values, start);
    }

    /// Adds a column of integers, which `value` reads from each row.
    pub fn uint<R>(&mut self, id: u16, rows: &[R], value: impl Fn(&R) -> u64) {
        let mut wide = std::mem::take(self.wide);
        wide.clear();
        wide.extend(rows.iter().map(value));
        self.integers(id, &wide);
        *self.wide = wide;
    }

    /// Adds a column of times, or other numbers that rise slowly, which `value` reads from each
    /// row.
    pub fn time<R>(&mut self, id: u16, rows: &[R], value: impl Fn(&R) -> u64) {
        let Some(first) = rows.first().map(&value) else {
            return self.uint(id, rows, value);
        };
        let mut wide = std::mem::take(self.wide);
        wide.clear();
        wide.extend(
            rows.windows(2).map(|pair| fold(value(&pair[1]).wrapping_sub(value(&pair[0])))),
        );
        self.differences(id, first, &wide, true);
        *self.wide = wide;
    }

    /// Adds a column of integers that some rows lack, and its companion [`PRESENT`].
    pub fn option<R>(&mut self, id: u16, rows: &[R], value: impl Fn(&R) -> Option<u64>) {
        self.flag(id | PRESENT, rows, |row| value(row).is_some());
        self.uint(id, rows, |row| value(row).unwrap_or(0));
    }

    /// Like [`Self::option`], for numbers that rise slowly. A row without a number repeats the
    /// number before, so that the differences stay small.
    pub fn option_time<R>(&mut self, id: u16, rows: &[R], value: impl Fn(&R) -> Option<u64>) {
        self.flag(id | PRESENT, rows, |row| value(row).is_some());
        let mut last = 0;
        let filled: Vec<u64> = rows
            .iter()
            .map(|row| {
                last = value(row).unwrap_or(last);
                last
            })
            .collect();
        self.time(id, &filled, |value| *value);
    }

    /// Adds a column of booleans, which `value` reads from each row.
    pub fn flag<R>(&mut self, id: u16, rows: &[R], value: impl Fn(&R) -> bool) {
        let packed: Vec<u8> = rows
            .chunks(8)
            .map(|chunk| {
                chunk
                    .iter()
                    .enumerate()
                    .fold(0, |byte, (bit, row)| byte | u8::from(value(row)) << bit)
            })
            .collect();
        self.packed(id, &packed, rows.len());
    }

    /// Adds a column of doubles, which `value` reads from each row.
    pub fn float<R>(&mut self, id: u16, rows: &[R], value: impl Fn(&R) -> f64) {
        let bits: Vec<u64> = rows.iter().map(|row| value(row).to_bits()).collect();
        let start = self.data.len();
        self.planes.write(&bits, &mut self.data);
        self.column(id, Kind::Float, Encoding::Planes, rows.len(), start);
    }

    /// Adds a column of texts, and its companion [`LENGTHS`].
    pub fn text<R>(&mut self, id: u16, rows: &[R], value: impl Fn(&R) -> &str) {
        self.uint(id | LENGTHS, rows, |row| value(row).len() as u64);
        let bytes: Vec<u8> = rows.iter().flat_map(|row| value(row).bytes()).collect();
        let start = self.data.len();
        self.planes.write(&bytes, &mut self.data);
        self.column(id, Kind::Text, Encoding::Planes, bytes.len(), start);
    }

    /// Adds a column of lists, and its companion [`LENGTHS`].
    pub fn list<R>(&mut self, id: u16, rows: &[R], value: impl Fn(&R) -> &[u64]) {
        self.uint(id | LENGTHS, rows, |row| value(row).len() as u64);
        let all: Vec<u64> = rows.iter().flat_map(|row| value(row).iter().copied()).collect();
        self.integers(id, &all);
    }
}
