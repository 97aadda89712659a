//! Looks up the functions of one stack in a growing file. Stacks aren't kept while the file is
//! followed, so the blocks that define them are read again.

use std::collections::BTreeMap;
use std::fs::File;

use super::{TailDecoder, TailUpdate, TraceTail};
use crate::model::{NameId, ProcessIndex, Stack, StackId, Symbol};
use crate::scan::{IndexRow, Source};
use crate::tables::{Part, table};

/// Largest number of frames and of functions to look up, from the innermost on.
const MOST_FRAMES: usize = 256;
const MOST_FUNCTIONS: usize = 512;

/// A function of a stack, with the texts of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackFunction {
    /// Address of the frame, as in [`Stack::frames`].
    pub address: u64,
    /// Name of the function; empty if unknown.
    pub function: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Source line; 0 if unknown.
    pub line: u32,
    /// Path of the module; empty if unknown.
    pub module: String,
}

impl TraceTail {
    /// Returns the functions of a stack that are in the file so far, innermost first. Walks through
    /// the whole file, so it is for rare events.
    pub fn stack_functions(
        &mut self,
        file: &File,
        decoder: &mut TailDecoder,
        process: ProcessIndex,
        stack: StackId,
    ) -> Vec<StackFunction> {
        let Ok(copy) = file.try_clone() else { return Vec::new() };
        let source = Source::of(copy, self.at.length);
        let Ok(blocks) = source.walked(self.at.first, &mut Vec::new()) else { return Vec::new() };
        let is_stack = |row: &Stack| row.process == process && row.stack == stack;
        let found = rows_of(&source, &blocks, table::STACKS, decoder).find_map(|rows| {
            let rows: Vec<Stack> = rows;
            rows.into_iter().find(is_stack)
        });
        let Some(found) = found else { return Vec::new() };
        let frames = &found.frames[..found.frames.len().min(MOST_FRAMES)];
        let mut symbols: BTreeMap<u64, BTreeMap<u16, Symbol>> =
            frames.iter().map(|frame| (*frame, BTreeMap::new())).collect();
        for rows in rows_of(&source, &blocks, table::SYMBOLS, decoder) {
            let rows: Vec<Symbol> = rows;
            for row in rows.into_iter().filter(|row| row.process == process) {
                if let Some(of_frame) = symbols.get_mut(&row.address) {
                    of_frame.entry(row.depth).or_insert(row);
                }
            }
        }
        let none = TailUpdate::default();
        let mut text = |id: NameId| self.name(&none, file, decoder, id);
        let rows = frames.iter().filter_map(|frame| symbols.remove(frame)).flatten();
        rows.take(MOST_FUNCTIONS)
            .map(|(_, row)| StackFunction {
                address: row.address,
                function: text(row.function),
                file: text(row.file),
                line: row.line,
                module: text(row.module),
            })
            .collect()
    }
}

/// Reads the blocks of a table, the newest first. Damaged blocks have no rows.
fn rows_of<'a, R: Part>(
    source: &'a Source,
    blocks: &'a [IndexRow],
    table: u16,
    decoder: &'a mut TailDecoder,
) -> impl Iterator<Item = Vec<R>> {
    let of_table = move |block: &&IndexRow| {
        block.header.table == table && u64::from(block.header.raw_len) <= source.memory_limit()
    };
    blocks
        .iter()
        .rev()
        .filter(of_table)
        .map(|block| decoder.rows(source, block).unwrap_or_default())
}
