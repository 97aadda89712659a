//! Names of a file that grows, without keeping them all: those that were just read go with
//! what was read, and where the others are is known by block.

use crate::error::Damage;
use crate::file::{BLOCK_HEADER_BYTES, BlockHeader};
use crate::planes::PlaneReader;
use crate::scan::{IndexRow, Source};
use crate::tables::{NameRow, table};
use rustc_hash::FxHashMap;
use std::os::unix::fs::FileExt;

/// Blocks of names that are found again; later ones are known only while they are new.
const MAX_BLOCKS: usize = 1 << 16;
/// Names that were looked up and are kept, and their bytes.
const MAX_KEPT: usize = 1 << 12;
const MAX_KEPT_BYTES: usize = 256 << 10;
/// Wanted names that are kept.
const MAX_WANTED: usize = 1 << 14;
/// A longer name than this is no wanted one.
const MAX_WANTED_BYTES: usize = 256;

/// The position of a block of names, and the ids in it.
#[derive(Clone, Copy, Debug)]
struct NamesBlock {
    offset: u64,
    first: u32,
    last: u32,
}

/// Names of one file.
#[derive(Debug, Default)]
pub(crate) struct TailNames {
    blocks: Vec<NamesBlock>,
    kept: FxHashMap<u32, Box<str>>,
    kept_bytes: usize,
    /// Names that the reader of the file asked for, with the number of rows that use them.
    wanted: FxHashMap<u32, (Box<str>, u32)>,
}

impl TailNames {
    /// Remembers a block's names, and keeps those that are wanted.
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

    /// Makes room among wanted names: of the older half, those that were of one row only go.
    fn has_room(&mut self) -> bool {
        if self.wanted.len() >= MAX_WANTED {
            let mut ids: Vec<u32> = self.wanted.keys().copied().collect();
            ids.sort_unstable();
            let middle = ids[ids.len() / 2];
            self.wanted.retain(|id, (_, rows)| *id >= middle || *rows > 1);
        }
        self.wanted.len() < MAX_WANTED
    }

    /// A name that is wanted.
    pub fn wanted(&self, id: u32) -> Option<&str> {
        self.wanted.get(&id).map(|(name, _)| &**name)
    }

    /// Counts a row with a name that is wanted.
    pub fn used(&mut self, id: u32) {
        if let Some((_, rows)) = self.wanted.get_mut(&id) {
            *rows = rows.saturating_add(1);
        }
    }

    /// A name that was looked up before.
    pub fn kept(&self, id: u32) -> Option<&str> {
        self.kept.get(&id).map(|name| &**name)
    }

    /// A name as its block has it.
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
    source.file.read_exact_at(&mut bytes, offset).map_err(gone)?;
    let header = BlockHeader::parse(&bytes)?;
    match header.table {
        table::NAMES => source.rows(&IndexRow { offset, header }, &mut Vec::new(), planes),
        _ => Err(Damage::new("a block of names is gone")),
    }
}
