//! Reads a block's payload; see [`crate::columns`] for its layout.
//!
//! The payload isn't trusted: counts, lengths, kinds and encodings are checked before they are used
//! and before memory is allocated for them.

use crate::columns::{ENTRY_BYTES, Encoding, Kind, LENGTHS, PRESENT, unfold};
use crate::error::Damage;
use crate::file::{BlockHeader, MAX_ROWS, u16_at, u32_at, u64_at};
use crate::planes::PlaneReader;

/// One block's payload. Its directory has been checked; its columns are decoded when they are read.
pub(crate) struct Columns<'a> {
    planes: &'a mut PlaneReader,
    entries: &'a [u8],
    data: &'a [u8],
    /// Number of rows, according to the block's header.
    pub rows: usize,
    /// Bytes of `header.raw_len` that the columns don't use. Rows may need them beyond the decoded
    /// columns; see [`Self::fill`].
    spare: u64,
}

fn more_than_stated() -> Damage {
    Damage::new("a block holds more than its header has")
}

fn is_set(packed: &[u8], row: usize) -> bool {
    packed[row / 8] >> (row % 8) & 1 != 0
}

struct Entry<'a> {
    kind: u8,
    encoding: u8,
    values: usize,
    bytes: &'a [u8],
}

impl<'a> Columns<'a> {
    /// Reads a payload's directory.
    /// If this succeeds, all columns together decode to at most `header.raw_len` bytes, which
    /// [`BlockHeader::parse`] has bounded.
    /// [`BlockHeader::parse`] has bounded.
    pub fn parse(
        payload: &'a [u8],
        header: &BlockHeader,
        planes: &'a mut PlaneReader,
    ) -> Result<Columns<'a>, Damage> {
        let cut = || Damage::new("a block's directory is cut short");
        let (count, rest) = payload.split_at_checked(2).ok_or_else(cut)?;
        let size = usize::from(u16_at(count, 0)) * ENTRY_BYTES;
        let (entries, data) = rest.split_at_checked(size).ok_or_else(cut)?;
        let rows = header.rows as usize;
        if rows > MAX_ROWS {
            return Err(Damage::new("a block claims too many rows"));
        }
        let values = |entry: &[u8]| {
            let wide = entry[2] == Kind::Unsigned as u8 || entry[2] == Kind::Float as u8;
            u64::from(u32_at(entry, 4)) * if wide { 8 } else { 1 }
        };
        let decoded = entries.chunks_exact(ENTRY_BYTES).map(values).sum::<u64>();
        let spare = u64::from(header.raw_len).checked_sub(decoded).ok_or_else(more_than_stated)?;
        Ok(Columns { planes, entries, data, rows, spare })
    }

    /// Counts bytes of decoded rows that no column contains, such as frames that rows share. Fails
    /// if all decoded bytes together exceed the size in the block's header.
    pub fn fill(&mut self, bytes: usize) -> Result<(), Damage> {
        self.spare = self.spare.checked_sub(bytes as u64).ok_or_else(more_than_stated)?;
        Ok(())
    }

    /// Whether the payload has a column with this id.
    pub fn has(&self, id: u16) -> bool {
        self.entries.chunks_exact(ENTRY_BYTES).any(|entry| u16_at(entry, 0) == id)
    }

    fn entry(&self, id: u16) -> Result<Option<Entry<'a>>, Damage> {
        let mut start = 0usize;
        for entry in self.entries.chunks_exact(ENTRY_BYTES) {
            let stored = u32_at(entry, 8) as usize;
            if u16_at(entry, 0) == id {
                let bytes = self.data.get(start..start + stored);
                let bytes = bytes
                    .ok_or_else(|| Damage::new(format!("column {id} lies outside its block")))?;
                let values = u32_at(entry, 4) as usize;
                return Ok(Some(Entry { kind: entry[2], encoding: entry[3], values, bytes }));
            }
            start += stored;
        }
        Ok(None)
    }

    fn needed(&self, id: u16, kind: Kind) -> Result<Entry<'a>, Damage> {
        let entry =
            self.entry(id)?.ok_or_else(|| Damage::new(format!("column {id} is missing")))?;
        if entry.kind != kind as u8 {
            return Err(Damage::new(format!("column {id} holds another kind of value")));
        }
        Ok(entry)
    }

    fn decode(&mut self, entry: &Entry<'_>, out: &mut Vec<u64>) -> Result<(), Damage> {
        if entry.encoding == Encoding::Planes as u8 {
            return self.planes.read(entry.bytes, entry.values, out);
        }
        let folded = match entry.encoding {
            e if e == Encoding::Rising as u8 => false,
            e if e == Encoding::Wandering as u8 => true,
            _ => return Err(Damage::new("a column uses an unknown encoding")),
        };
        let cut = || Damage::new("a column is cut short");
        let (first, rest) = entry.bytes.split_at_checked(8).ok_or_else(cut)?;
        let count = entry.values.checked_sub(1).ok_or_else(cut)?;
        self.planes.read(rest, count, out)?;
        let mut value = u64_at(first, 0);
        for slot in out.iter_mut() {
            let next = value.wrapping_add(if folded { unfold(*slot) } else { *slot });
            *slot = value;
            value = next;
        }
        out.push(value);
        Ok(())
    }

    /// Replaces `out` with a column of integers of any length.
    pub fn integers_into(&mut self, id: u16, out: &mut Vec<u64>) -> Result<(), Damage> {
        let entry = self.needed(id, Kind::Unsigned)?;
        self.decode(&entry, out)
    }

    /// Replaces `out` with a column of integers below 2^32 of any length.
    pub fn narrow_into(&mut self, id: u16, out: &mut Vec<u32>) -> Result<(), Damage> {
        let entry = self.needed(id, Kind::Unsigned)?;
        if entry.encoding != Encoding::Planes as u8 {
            return Err(Damage::new("a column uses an unexpected encoding"));
        }
        self.planes.read(entry.bytes, entry.values, out)
    }

    /// Replaces `out` with a column of booleans, packed eight to a byte; one per row.
    pub fn packed_into(&mut self, id: u16, out: &mut Vec<u8>) -> Result<(), Damage> {
        let entry = self.needed(id, Kind::Boolean)?;
        if entry.encoding != Encoding::Bits as u8 || entry.values != self.rows {
            return Err(Damage::new("a column of booleans does not fit its block"));
        }
        self.planes.read(entry.bytes, self.rows.div_ceil(8), out)
    }

    fn per_row<T>(&self, id: u16, values: Vec<T>) -> Result<Vec<T>, Damage> {
        match values.len() == self.rows {
            true => Ok(values),
            false => Err(Damage::new(format!("column {id} does not have one value per row"))),
        }
    }

    /// Returns a column of integers, one per row.
    pub fn uint(&mut self, id: u16) -> Result<Vec<u64>, Damage> {
        let mut values = Vec::new();
        self.integers_into(id, &mut values)?;
        self.per_row(id, values)
    }

    /// Returns a column of integers below 2^32, one per row.
    pub fn narrow(&mut self, id: u16) -> Result<Vec<u32>, Damage> {
        let mut values = Vec::new();
        self.narrow_into(id, &mut values)?;
        self.per_row(id, values)
    }

    /// Returns a column of integers that some rows lack.
    pub fn option(&mut self, id: u16) -> Result<Vec<Option<u64>>, Damage> {
        let mut present = Vec::new();
        self.packed_into(id | PRESENT, &mut present)?;
        let values = self.uint(id)?.into_iter().enumerate();
        Ok(values.map(|(row, value)| is_set(&present, row).then_some(value)).collect())
    }

    /// Returns a column of integers that some rows lack. In a file that was written before the
    /// column existed, all rows lack it.
    pub fn option_or_none(&mut self, id: u16) -> Result<Vec<Option<u64>>, Damage> {
        match self.entry(id)? {
            Some(_) => self.option(id),
            None => Ok(vec![None; self.rows]),
        }
    }

    /// Returns a column of booleans, one per row.
    pub fn flag(&mut self, id: u16) -> Result<Vec<bool>, Damage> {
        let mut packed = Vec::new();
        self.packed_into(id, &mut packed)?;
        Ok((0..self.rows).map(|row| is_set(&packed, row)).collect())
    }

    /// Returns a column of doubles, one per row.
    pub fn float(&mut self, id: u16) -> Result<Vec<f64>, Damage> {
        let entry = self.needed(id, Kind::Float)?;
        let mut bits = Vec::new();
        self.decode(&entry, &mut bits)?;
        let bits = self.per_row(id, bits)?;
        Ok(bits.into_iter().map(f64::from_bits).collect())
    }

    /// Returns a column of texts, one per row. Bytes that aren't UTF-8 are replaced.
    pub fn text(&mut self, id: u16) -> Result<Vec<String>, Damage> {
        let entry = self.needed(id, Kind::Text)?;
        let mut bytes: Vec<u8> = Vec::new();
        self.planes.read(entry.bytes, entry.values, &mut bytes)?;
        let parts = self.split(id, &bytes)?;
        Ok(parts.into_iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect())
    }

    /// Returns a column of lists, one per row.
    pub fn list(&mut self, id: u16) -> Result<Vec<Vec<u64>>, Damage> {
        let mut values = Vec::new();
        self.integers_into(id, &mut values)?;
        Ok(self.split(id, &values)?.into_iter().map(<[u64]>::to_vec).collect())
    }

    fn split<'v, T>(&mut self, id: u16, values: &'v [T]) -> Result<Vec<&'v [T]>, Damage> {
        let lengths = self.uint(id | LENGTHS)?;
        let mut rest = values;
        let mut parts = Vec::with_capacity(lengths.len());
        for length in lengths {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let (part, after) = rest
                .split_at_checked(length)
                .ok_or_else(|| Damage::new(format!("column {id} is shorter than its lengths")))?;
            parts.push(part);
            rest = after;
        }
        Ok(parts)
    }
}
