//! Encodes the unwind tables of one file for the cache: the table of the whole file, or of the
//! parts that stacks needed.

use std::ops::Range;
use tprof_symbols::disk_cache::{CachedContent, DiskCache, FileKind, LibraryKey};
use tprof_symbols::elf::{u32_at, u64_at};
use tprof_wire::unwind::{TableHeader, table_bytes};

/// Number of words in the index for each table.
const WORDS: usize = 6;

/// The part of a file that a table is for: a range of ELF addresses, and a range of entries in the
/// search table. For the whole file both are 0 to `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowSpan {
    /// First ELF address, and one past the last.
    pub addresses: (u64, u64),
    /// First entry, and one past the last.
    pub entries: (u64, u64),
}

impl RowSpan {
    /// The whole file.
    pub const WHOLE: RowSpan = RowSpan { addresses: (0, u64::MAX), entries: (0, u64::MAX) };
}

/// The part that a table is for, and the encoded table.
pub type SpanRows = (RowSpan, Vec<u8>);

/// The cached tables of one file.
#[derive(Debug, Default)]
pub struct CachedRows {
    content: Option<CachedContent>,
    tables: Vec<(RowSpan, Range<usize>)>,
}

impl CachedRows {
    /// Reads the cached tables of a file; empty if none are cached.
    pub fn read(kept: &DiskCache, key: &LibraryKey) -> CachedRows {
        let content = kept.read(key, FileKind::Rows);
        let tables = content.as_deref().and_then(tables_in);
        CachedRows { content, tables: tables.unwrap_or_default() }
    }

    /// Returns the tables, each with the part that it is for.
    pub fn tables(&self) -> impl Iterator<Item = (RowSpan, &[u8])> {
        let content = self.content.as_deref().unwrap_or_default();
        self.tables.iter().map(|(span, range)| (*span, &content[range.clone()]))
    }

    /// Adds tables to those that are cached for a file.
    pub fn add(kept: &DiskCache, key: &LibraryKey, fresh: &[SpanRows]) {
        let before = CachedRows::read(kept, key);
        let is_fresh = |span: &RowSpan| fresh.iter().any(|(other, _)| other == span);
        let old = before.tables().filter(|(span, _)| !is_fresh(span));
        let new = fresh.iter().map(|(span, bytes)| (*span, bytes.as_slice()));
        let tables: Vec<_> = old.chain(new).collect();
        let mut head = (tables.len() as u64).to_ne_bytes().to_vec();
        let mut at = 8 + tables.len() * WORDS * 8;
        for (span, bytes) in &tables {
            let (place, len) = (at as u64, bytes.len() as u64);
            let RowSpan { addresses, entries } = span;
            for word in [addresses.0, addresses.1, entries.0, entries.1, place, len] {
                head.extend(word.to_ne_bytes());
            }
            at += bytes.len();
        }
        let content: Vec<_> =
            std::iter::once(head.as_slice()).chain(tables.iter().map(|t| t.1)).collect();
        kept.write(key, FileKind::Rows, &content);
    }
}

/// Returns the tables in the content of a cached file; `None` if any of them is malformed, so that
/// a target might read outside of it.
fn tables_in(bytes: &[u8]) -> Option<Vec<(RowSpan, Range<usize>)>> {
    let count = usize::try_from(u64_at(bytes.get(..8)?, 0)).ok()?;
    let index = bytes.get(8..count.checked_mul(WORDS * 8)?.checked_add(8)?)?;
    let table = |words: &[u8]| {
        let word = |at: usize| u64_at(words, at * 8);
        let from = usize::try_from(word(4)).ok()?;
        let range = from..from.checked_add(usize::try_from(word(5)).ok()?)?;
        let table = bytes.get(range.clone())?;
        // Targets use these values without checks.
        let is_table = table.len() >= size_of::<TableHeader>()
            && table.len() == table_bytes(u32_at(table, 0) as usize)
            && u32_at(table, 4) == tprof_wire::WIRE_VERSION;
        let span = RowSpan { addresses: (word(0), word(1)), entries: (word(2), word(3)) };
        is_table.then_some((span, range))
    };
    index.chunks_exact(WORDS * 8).map(table).collect()
}
