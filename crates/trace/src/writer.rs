//! Writes one `.tprof` while the job runs.
//!
//! Rows wait in memory until [`TraceWriter::flush`]; blocks go to the file
//! whole or not at all, so that the file is readable at every moment. Nothing
//! is ever rewritten.

use crate::columns::{BlockWriter, Encoder};
use crate::error::TraceError;
use crate::file::{
    BLOCK_HEADER_BYTES, BlockHeader, MAX_ROWS, NO_PROCESS, PREFIX_BYTES, TraceHeader,
};
use crate::heap_block::{HeapBlock, Scratch};
use crate::model::*;
use crate::pending::Pending;
use crate::recorded::{self, Recorded};
use crate::scan::IndexRow;
use crate::tables::{NameRow, Row, TraceRow, table};
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

mod rows;
#[cfg(test)]
mod tests;

/// Most rows in one block of a small table.
const ROWS_PER_BLOCK: usize = 1 << 16;
/// Most values in one column of a small table's block.
const VALUES_PER_BLOCK: usize = 1 << 20;
/// Names are cut here; a command line can be two megabytes.
const MAX_NAME_BYTES: usize = 256 << 10;
/// Bytes of rows that wait in memory while the disk refuses them; rows beyond that are dropped.
const MAX_PENDING_BYTES: usize = 16 << 20;
/// Rows that may wait take no more than this.
const MAX_WAITING_BYTES: usize = 64 << 10;
/// Room for a header that is written last.
const BLANK_HEADER_BYTES: usize = 1024;
/// Blocks in one part of the index.
const INDEX_ROWS: usize = 4096;

/// Writes one trace file, block by block.
///
/// After an error the file still ends with a whole block, and the writer
/// still works: what it could not write waits for the next flush (up to 16 MiB,
/// then it is dropped), heap blocks are gone.
pub struct TraceWriter {
    path: PathBuf,
    /// Open in append mode, so that writing goes on where a truncation left off.
    file: File,
    /// Bytes of whole blocks.
    length: u64,
    /// A part of a block lies beyond `length`, which could not be cut off yet.
    torn: bool,
    names: FxHashMap<Box<str>, NameId>,
    pending: Pending,
    encoder: Encoder,
    scratch: Scratch,
    out: Vec<u8>,
    index: Vec<IndexRow>,
    /// Offset of the index's last part; 0 for none.
    index_part: u64,
    recorded: Recorded,
    /// Rows that were dropped, but for names.
    dropped: u64,
    /// Names that were dropped, by their numbers.
    given_up: HashMap<u32, NameRow>,
}

impl TraceWriter {
    /// Creates a file that must not exist, for only its owner, and writes its header.
    ///
    /// A symbolic link in its place is refused, as `O_EXCL` implies.
    pub fn create(path: &Path, header: &TraceHeader) -> Result<TraceWriter, TraceError> {
        TraceWriter::create_with(path, &header.to_bytes())
    }

    /// Like [`Self::create`], where the header is only known after the rows: an import's rank and
    /// first moment. [`Self::finish_as`] writes the header.
    pub fn create_blank(path: &Path) -> Result<TraceWriter, TraceError> {
        let header = TraceHeader { provisional: true, ..TraceHeader::default() };
        TraceWriter::create_with(path, &header.to_bytes_of(BLANK_HEADER_BYTES))
    }

    fn create_with(path: &Path, bytes: &[u8]) -> Result<TraceWriter, TraceError> {
        let failed = |what| move |source| TraceError::Io { path: path.to_path_buf(), what, source };
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path);
        let mut file = file.map_err(failed("create"))?;
        if let Err(source) = file.write_all(bytes) {
            // An empty or torn file would only mislead; the error is reported.
            let _ = std::fs::remove_file(path);
            return Err(failed("write")(source));
        }
        Ok(TraceWriter {
            path: path.to_path_buf(),
            file,
            length: bytes.len() as u64,
            torn: false,
            names: HashMap::default(),
            pending: Pending::default(),
            encoder: Encoder::new().map_err(failed("write"))?,
            scratch: Scratch::default(),
            out: Vec::new(),
            index: Vec::new(),
            index_part: 0,
            recorded: Recorded::default(),
            dropped: 0,
            given_up: HashMap::new(),
        })
    }

    /// Gives the writer its file's new name, for messages.
    pub fn moved_to(&mut self, path: &Path) {
        self.path = path.to_path_buf();
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Interns a string; cut at 256 KiB.
    pub fn name(&mut self, text: &str) -> NameId {
        let cut = (0..=text.len().min(MAX_NAME_BYTES)).rev().find(|at| text.is_char_boundary(*at));
        let text = &text[..cut.unwrap_or(0)];
        if text.is_empty() {
            return NameId(0);
        }
        if let Some(id) = self.names.get(text) {
            return *id;
        }
        let id = NameId(self.names.len() as u32 + 1);
        self.names.insert(text.into(), id);
        self.pending.bytes += text.len() + size_of::<NameRow>();
        self.pending.names.push(NameRow { id: id.0, text: text.to_owned() });
        id
    }

    /// Bytes in the file.
    pub fn bytes_written(&self) -> u64 {
        self.length
    }

    /// Returns what the file holds, without rows that wait and those that could not be written.
    pub fn recorded(&self) -> Recorded {
        self.recorded
    }

    /// Bytes of memory in rows that wait for [`Self::flush`].
    pub fn pending_bytes(&self) -> usize {
        self.pending.bytes
    }

    /// Whether the rows that wait for [`Self::flush`] are few and of the kinds that
    /// come all the time: stacks, names, counters. Without them a file has less,
    /// but nothing wrong.
    pub fn can_wait(&self) -> bool {
        self.pending.bytes < MAX_WAITING_BYTES && self.pending.only_refines()
    }

    /// Writes a block of heap events, and pending rows before it, so that a
    /// block never refers to what is not on disk yet.
    ///
    /// The block is empty afterwards, also after an error: note its length
    /// before if losses are to be counted.
    pub fn heap(&mut self, block: &mut HeapBlock) -> Result<(), TraceError> {
        let result = self.flush().and_then(|()| self.heap_block(block));
        block.clear();
        result
    }

    fn heap_block(&mut self, block: &HeapBlock) -> Result<(), TraceError> {
        if block.is_empty() {
            return Ok(());
        }
        if block.len() > MAX_ROWS {
            return Err(self.failed(io::ErrorKind::FileTooLarge.into()));
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = self.block(block.header(), |columns| block.write(columns, &mut scratch));
        self.scratch = scratch;
        result
    }

    /// Writes all pending rows.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        if self.pending.bytes == 0 {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending);
        pending.maps.sort_by_key(|row| row.time_ns);
        pending.symbols.sort_by_key(|row| (row.process, row.address));
        let result = self.rows_of_all(&mut pending);
        match result {
            Ok(()) => pending.bytes = 0,
            Err(_) if pending.bytes > MAX_PENDING_BYTES => {
                // Names keep their numbers only if they are written in the end.
                let names = std::mem::take(&mut pending.names);
                let bytes = names.iter().map(|row| row.text.len() + size_of::<NameRow>()).sum();
                self.dropped += pending.rows() as u64;
                self.pending = Pending { names, bytes, ..Pending::default() };
                return result;
            }
            Err(_) => (),
        }
        self.pending = pending;
        result
    }

    /// Drops the rows that wait, since the disk will not take them any more. Rows that are added
    /// later still have their names.
    pub fn give_up(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        let names = std::mem::take(&mut pending.names);
        self.dropped += pending.rows() as u64;
        self.given_up.extend(names.into_iter().map(|row| (row.id, row)));
    }

    /// Rows that were dropped since the last call, since the disk refused them.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    fn rows_of_all(&mut self, pending: &mut Pending) -> Result<(), TraceError> {
        self.rows(&mut pending.names)?;
        self.rows(&mut pending.processes)?;
        self.rows(&mut pending.threads)?;
        self.rows(&mut pending.thread_names)?;
        self.rows(&mut pending.modules)?;
        self.rows(&mut pending.stacks)?;
        self.rows(&mut pending.symbols)?;
        self.rows(&mut pending.maps)?;
        self.rows(&mut pending.totals)?;
        self.rows(&mut pending.counters)?;
        self.rows(&mut pending.marks)?;
        self.rows(&mut pending.losses)?;
        self.rows(&mut pending.devices)?;
        self.rows(&mut pending.streams)?;
        self.rows(&mut pending.communicators)?;
        self.rows(&mut pending.clock_joins)?;
        self.rows(&mut pending.properties)?;
        self.rows(&mut pending.thread_counts)?;
        self.rows(&mut pending.thread_ends)?;
        self.rows(&mut pending.process_ends)
    }

    /// Writes rows of a large table, and pending rows before them, so that a
    /// block never refers to what is not on disk yet.
    ///
    /// Rows are best given 65,536 at a time and sorted by time. The list is
    /// empty afterwards, also after an error: note its length before if losses
    /// are to be counted.
    pub fn write<R: TraceRow>(&mut self, rows: &mut Vec<R>) -> Result<(), TraceError> {
        let samples = R::cpu_samples(rows);
        let result = self.flush().and_then(|()| self.rows(rows));
        // Rows that are left were not written.
        self.recorded.samples += samples - R::cpu_samples(rows);
        rows.clear();
        result
    }

    /// Writes rows as blocks; those that were written leave the list.
    fn rows<R: Row>(&mut self, rows: &mut Vec<R>) -> Result<(), TraceError> {
        while !rows.is_empty() {
            let mut values = 0;
            let fits = |row: &&R| {
                values += row.weight();
                values <= VALUES_PER_BLOCK
            };
            let count = rows.iter().take(ROWS_PER_BLOCK).take_while(fits).count().max(1);
            let part = &rows[..count];
            let header = BlockHeader {
                table: R::TABLE,
                rows: count as u32,
                process: NO_PROCESS,
                first_ns: part.iter().map(R::time_ns).min().unwrap_or(0),
                last_ns: part.iter().map(R::end_ns).max().unwrap_or(0),
                ..BlockHeader::default()
            };
            self.block(header, |columns| R::write(part, columns))?;
            rows.drain(..count);
        }
        // Otherwise a list that is soon as long again would make the kernel map its pages again.
        rows.shrink_to(ROWS_PER_BLOCK / 8);
        Ok(())
    }

    /// Completes the header, appends the block, remembers it in the index.
    fn block(
        &mut self,
        mut header: BlockHeader,
        fill: impl FnOnce(&mut BlockWriter<'_>),
    ) -> Result<(), TraceError> {
        self.out.clear();
        self.out.resize(BLOCK_HEADER_BYTES, 0);
        header.raw_len = self.encoder.payload(&mut self.out, fill) as u32;
        let payload = &self.out[BLOCK_HEADER_BYTES..];
        header.stored_len = payload.len() as u32;
        header.payload_crc = crc32fast::hash(payload);
        self.out[..BLOCK_HEADER_BYTES].copy_from_slice(&header.to_bytes());
        let offset = self.length;
        self.append()?;
        if recorded::is_event(header.table) {
            self.recorded.events += u64::from(header.rows);
        }
        if header.table == table::INDEX {
            self.index_part = offset;
        } else if header.table != table::END {
            self.index.push(IndexRow { offset, header });
        }
        if self.index.len() >= INDEX_ROWS {
            self.index_block()?;
        }
        Ok(())
    }

    /// Writes a part of the index, so that it never grows in memory. Parts are
    /// chained from the last to the first.
    fn index_block(&mut self) -> Result<(), TraceError> {
        let rows = std::mem::take(&mut self.index);
        let header = BlockHeader {
            table: table::INDEX,
            rows: rows.len() as u32,
            process: NO_PROCESS,
            base: self.index_part,
            ..BlockHeader::default()
        };
        let result = self.block(header, |columns| IndexRow::write(&rows, columns));
        if result.is_err() {
            self.index = rows;
        }
        result
    }

    /// Appends `out`; if that fails, the file is cut back to its last whole block.
    fn append(&mut self) -> Result<(), TraceError> {
        if self.torn {
            self.file.set_len(self.length).map_err(|source| self.failed(source))?;
            self.torn = false;
        }
        if let Err(source) = self.file.write_all(&self.out) {
            self.torn = self.file.set_len(self.length).is_err();
            return Err(self.failed(source));
        }
        self.length += self.out.len() as u64;
        Ok(())
    }

    fn failed(&self, source: io::Error) -> TraceError {
        TraceError::Io { path: self.path.clone(), what: "write", source }
    }

    /// Writes pending rows and an index that spares readers the search for blocks.
    ///
    /// A file without it is as good, only slower to open.
    pub fn finish(mut self) -> Result<(), TraceError> {
        self.flush()?;
        if !self.index.is_empty() {
            self.index_block()?;
        }
        let end = BlockHeader {
            table: table::END,
            process: NO_PROCESS,
            base: self.index_part,
            ..BlockHeader::default()
        };
        self.block(end, |_| ())
    }

    /// Like [`Self::finish`], with the header of a file that [`Self::create_blank`] began.
    pub fn finish_as(self, header: &TraceHeader) -> Result<(), TraceError> {
        let path = self.path.clone();
        let failed = |source| TraceError::Io { path: path.clone(), what: "write", source };
        self.finish()?;
        let bytes = header.to_bytes_of(BLANK_HEADER_BYTES);
        if bytes.len() != PREFIX_BYTES + BLANK_HEADER_BYTES {
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        // Opens the file again: bytes written through the appending one would land at the end.
        let file = OpenOptions::new().write(true).open(&path).map_err(failed)?;
        file.write_all_at(&bytes, 0).map_err(failed)
    }
}
