//! Looks up names of a growing file, without storing all of them. A name that was just read is
//! returned with its rows. Of any other name, only the position of its block is stored, and the
//! block is read again when the name is needed.

use crate::error::Damage;
use crate::file::{BLOCK_HEADER_BYTES, BlockHeader};
use crate::planes::PlaneReader;
use crate::scan::{IndexRow, Source};
use crate::tables::{NameRow, table};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Maximum number of name blocks whose position is stored. A name in a later block is known only to
/// the call that reads the block.
const MAX_BLOCKS: usize = 1 << 16;
/// Maximum number of looked-up names that are kept; `MAX_KEPT_BYTES` bounds their size.
const MAX_KEPT: usize = 1 << 12;
const MAX_KEPT_BYTES: usize = 256 << 10;
/// Maximum number of wanted names that are stored. A name is wanted if the caller's filter for
/// spans selects it.
const MAX_WANTED: usize = 1 << 14;
/// Names longer than this are never wanted, bytes.
const MAX_WANTED_BYTES: usize = 256;

/// The position of a block of names, and the range of ids in it.
#[derive(Clone, Copy, Debug)]
struct NamesBlock {
    offset: u64,
    first: u32,
    last: u32,
}

/// The names of one file.
#[derive(Debug, Default)]
pub(crate) struct TailNames {
    blocks: Vec<NamesBlock>,
    kept: FxHashMap<u32, Box<str>>,
    kept_bytes: usize,
    /// The newest names in segments. The rows that use them follow them there, so a call may have
    /// read only the names.
    passing: BTreeMap<u32, Box<str>>,
    /// The wanted names by id, each with the number of rows that have used it.
    wanted: FxHashMap<u32, (Box<str>, u32)>,
}

impl TailNames {
    /// Records the position of a block of names, and stores those names that are wanted.
    pub fn add(&mut self, offset: u64, rows: &[NameRow], is_wanted: impl Fn(&str) -> bool) {
        let ids = || rows.iter().map(|row| row.id);
        if let (Some(first), Some(last)) = (ids().min(), ids().max())
            && self.blocks.len() < MAX_BLOCKS
        {
            self.blocks.push(NamesBlock { offset, first, last });
        }
        for row in rows {
            if row.text.len() <= MAX_WANTED_BYTES && is_wanted(&row.text) && self.has_room() {
                self.wanted.insert(row.id, (row.text.as_str().into(), 0));
            }
        }
    }

    /// Stores names of a segment, where they can't be looked up again.
    pub fn add_passing(&mut self, rows: &[NameRow]) {
        for row in rows.iter().filter(|row| row.text.len() <= MAX_WANTED_BYTES) {
            self.passing.insert(row.id, row.text.as_str().into());
            if self.passing.len() > MAX_KEPT {
                self.passing.pop_first();
            }
        }
    }

    /// Returns a name that was in a segment lately.
    pub fn passing(&self, id: u32) -> Option<&str> {
        self.passing.get(&id).map(|name| &**name)
    }

    /// Makes room among the wanted names if there are too many: removes the names of the older half
    /// that at most one row has used. Returns whether there is room.
    fn has_room(&mut self) -> bool {
        if self.wanted.len() >= MAX_WANTED {
            let mut ids: Vec<u32> = self.wanted.keys().copied().collect();
            ids.sort_unstable();
            let middle = ids[ids.len() / 2];
            self.wanted.retain(|id, (_, rows)| *id >= middle || *rows > 1);
        }
        self.wanted.len() < MAX_WANTED
    }

    /// Returns a wanted name by its id.
    pub fn wanted(&self, id: u32) -> Option<&str> {
        self.wanted.get(&id).map(|(name, _)| &**name)
    }

    /// Counts a row that uses a wanted name.
    pub fn used(&mut self, id: u32) {
        if let Some((_, rows)) = self.wanted.get_mut(&id) {
            *rows = rows.saturating_add(1);
        }
    }

    /// Returns a name that was looked up before.
    pub fn kept(&self, id: u32) -> Option<&str> {
        self.kept.get(&id).map(|name| &**name)
    }

    /// Finds a name in its block, and keeps it if there is room.
    pub fn find(&mut self, source: &Source, id: u32, planes: &mut PlaneReader) -> Option<String> {
        let holds = |block: &&NamesBlock| (block.first..=block.last).contains(&id);
        let text = self.blocks.iter().rev().filter(holds).find_map(|block| {
            let rows = names_at(source, block.offset, planes).ok()?;
            rows.into_iter().find(|row| row.id == id).map(|row| row.text)
        })?;
        if self.kept.len() < MAX_KEPT && self.kept_bytes + text.len() <= MAX_KEPT_BYTES {
            self.kept_bytes += text.len();
            self.kept.insert(id, text.as_str().into());
        }
        Some(text)
    }
}

fn names_at(
    source: &Source,
    offset: u64,
    planes: &mut PlaneReader,
) -> Result<Vec<NameRow>, Damage> {
    let mut bytes = [0; BLOCK_HEADER_BYTES];
    let gone = |_| Damage::new("a block of names is gone");
    source.read_exact_at(&mut bytes, offset).map_err(gone)?;
    let header = BlockHeader::parse(&bytes)?;
    match header.table {
        table::NAMES => source.rows(&IndexRow { offset, header }, &mut Vec::new(), planes),
        _ => Err(Damage::new("a block of names is gone")),
    }
}
