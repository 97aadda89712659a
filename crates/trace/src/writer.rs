//! Writes one `.tprof` file while the job runs.
//!
//! Rows wait in memory until [`TraceWriter::flush`]. The writer appends whole blocks and never
//! rewrites one, so the file is readable at every moment.

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
use crate::watch::RowWatcher;
use kept::Kept;
pub use kept::{KeptCopy, KeptRoom};
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

mod kept;
mod rows;
#[cfg(test)]
mod tests;

/// Maximum number of rows in one block.
const ROWS_PER_BLOCK: usize = 1 << 16;
/// Maximum number of values in one column of a block.
const VALUES_PER_BLOCK: usize = 1 << 20;
/// Maximum length of a name; a longer one is cut. A command line can be two megabytes.
const MAX_NAME_BYTES: usize = 256 << 10;
/// If the disk refuses writes, the rows that wait are dropped once they exceed this many bytes.
const MAX_PENDING_BYTES: usize = 16 << 20;
/// Maximum size of the rows that may wait past a flush; see [`TraceWriter::can_wait`].
const MAX_WAITING_BYTES: usize = 64 << 10;
/// Size of the JSON in a blank header, which [`TraceWriter::finish_as`] fills in.
const BLANK_HEADER_BYTES: usize = 1024;
/// Number of blocks in one part of the index.
const INDEX_ROWS: usize = 4096;

/// Writes one trace file, block by block.
///
/// After an error, the file still ends with a whole block, and the writer still works. Rows that
/// couldn't be written wait for the next flush. If more than 16 MiB of rows wait, they are dropped.
/// Heap blocks that couldn't be written are lost.
pub struct TraceWriter {
    path: PathBuf,
    /// The file is open in append mode. So after a truncation, writing continues at the new end.
    file: File,
    /// Total size of the whole blocks, bytes.
    length: u64,
    /// Whether a part of a block lies beyond `length` and couldn't be cut off yet.
    torn: bool,
    names: FxHashMap<Box<str>, NameId>,
    /// The highest id of a name so far.
    last_name: u32,
    pending: Pending,
    encoder: Encoder,
    scratch: Scratch,
    out: Vec<u8>,
    index: Vec<IndexRow>,
    /// Offset of the last part of the index; 0 if there is none.
    index_part: u64,
    recorded: Recorded,
    /// Number of rows that were dropped, not counting names.
    dropped: u64,
    /// Names that [`Self::give_up`] removed, by their ids. The writer writes them again when a row
    /// uses them.
    given_up: HashMap<u32, NameRow>,
    /// The segments that take what happens, if only the last part of it is kept.
    kept: Option<Kept>,
    /// Who sees the rows that are written.
    watcher: Option<Box<dyn RowWatcher>>,
}

impl TraceWriter {
    /// Creates a file with permissions for only its owner, and writes its header. Fails if the file
    /// exists.
    ///
    /// If the path is a symbolic link, this fails too, because of `O_EXCL`.
    pub fn create(path: &Path, header: &TraceHeader) -> Result<TraceWriter, TraceError> {
        TraceWriter::create_with(path, &header.to_bytes())
    }

    /// Like [`Self::create`], for a header that is known only after the rows, such as an import's
    /// rank and first moment. [`Self::finish_as`] writes the header.
    pub fn create_blank(path: &Path) -> Result<TraceWriter, TraceError> {
        let header = TraceHeader { provisional: true, ..TraceHeader::default() };
        TraceWriter::create_with(path, &header.to_bytes_of(BLANK_HEADER_BYTES))
    }

    fn create_with(path: &Path, bytes: &[u8]) -> Result<TraceWriter, TraceError> {
        let failed = |what| move |source| TraceError::Io { path: path.to_path_buf(), what, source };
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path);
        let mut file = file.map_err(failed("create"))?;
        if let Err(source) = file.write_all(bytes) {
            // Remove the file, because an empty or torn file would only mislead. The caller gets
            // the error of writing.
            let _ = std::fs::remove_file(path);
            return Err(failed("write")(source));
        }
        TraceWriter::of(path, file, bytes.len() as u64)
    }

    /// Returns a writer that appends to a file of this length, bytes.
    fn of(path: &Path, file: File, length: u64) -> Result<TraceWriter, TraceError> {
        let failed = |what| move |source| TraceError::Io { path: path.to_path_buf(), what, source };
        Ok(TraceWriter {
            path: path.to_path_buf(),
            file,
            length,
            torn: false,
            names: HashMap::default(),
            last_name: 0,
            pending: Pending::default(),
            encoder: Encoder::new().map_err(failed("write"))?,
            scratch: Scratch::default(),
            out: Vec::new(),
            index: Vec::new(),
            index_part: 0,
            recorded: Recorded::default(),
            dropped: 0,
            given_up: HashMap::new(),
            kept: None,
            watcher: None,
        })
    }

    /// Sets the path after the file was renamed. The path is used in messages.
    pub fn moved_to(&mut self, path: &Path) {
        self.path = path.to_path_buf();
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Interns a string; longer strings are cut at 256 KiB.
    pub fn name(&mut self, text: &str) -> NameId {
        let cut = (0..=text.len().min(MAX_NAME_BYTES)).rev().find(|at| text.is_char_boundary(*at));
        let text = &text[..cut.unwrap_or(0)];
        if text.is_empty() {
            return NameId(0);
        }
        if let Some(id) = self.names.get(text) {
            return *id;
        }
        let id = self.add_name(text);
        self.names.insert(text.into(), id);
        if let Some(watcher) = &mut self.watcher {
            watcher.named(id, text);
        }
        id
    }

    /// Adds a name that the writer doesn't remember.
    fn add_name(&mut self, text: &str) -> NameId {
        let row = self.new_name(text);
        self.pending.names.push(row);
        NameId(self.last_name)
    }

    fn new_name(&mut self, text: &str) -> NameRow {
        self.last_name += 1;
        self.pending.bytes += text.len() + size_of::<NameRow>();
        NameRow { id: self.last_name, text: text.to_owned() }
    }

    /// Sets who sees the rows that are written from now on. It gets all names.
    pub fn watch(&mut self, mut watcher: Box<dyn RowWatcher>) {
        self.names.iter().for_each(|(text, id)| watcher.named(*id, text));
        self.watcher = Some(watcher);
    }

    /// Returns who sees the rows that are written.
    pub fn watcher(&mut self) -> Option<&mut Box<dyn RowWatcher>> {
        self.watcher.as_mut()
    }

    /// Returns the size of the file and its segments, bytes.
    pub fn bytes_written(&self) -> u64 {
        self.length + self.kept.as_ref().map_or(0, Kept::bytes)
    }

    /// Returns what the file contains, without rows that wait and rows that couldn't be written.
    pub fn recorded(&self) -> Recorded {
        let mut recorded = self.recorded;
        recorded += self.kept.as_ref().map_or(Recorded::default(), Kept::recorded);
        recorded
    }

    /// Returns the memory of the rows that wait for [`Self::flush`], bytes.
    pub fn pending_bytes(&self) -> usize {
        self.pending.bytes
    }

    /// Whether the rows that wait for [`Self::flush`] are few, and only of kinds that come all the
    /// time, such as stacks, names and counters. A file without these rows lacks details but is
    /// correct, so the flush can be postponed.
    pub fn can_wait(&self) -> bool {
        self.pending.bytes < MAX_WAITING_BYTES && self.pending.only_refines()
    }

    /// Writes the pending rows, and then a block of heap events. In this order, a block never
    /// refers to rows that aren't on disk yet.
    ///
    /// The block is empty afterwards, even after an error. To count losses, read its length before
    /// the call.
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
                // Keep the names, because their ids are already in use: the ids are valid only if
                // the names are written in the end.
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

    /// Drops the rows that wait, because the disk no longer accepts them. Rows that are added later
    /// can still use all names.
    pub fn give_up(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        let names = std::mem::take(&mut pending.names);
        self.dropped += pending.rows() as u64;
        self.given_up.extend(names.into_iter().map(|row| (row.id, row)));
    }

    /// Returns the number of rows that were dropped since the last call because the disk refused
    /// them.
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
        self.rows(&mut pending.recording)?;
        self.rows(&mut pending.counters)?;
        self.rows_of_switches(&mut pending.marks)?;
        self.rows_of_marks(&mut pending.marks, &mut pending.step_names)?;
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

    /// Writes the pending rows, and then rows of a large table. In this order, a block never refers
    /// to rows that aren't on disk yet.
    ///
    /// It is best to pass 65,536 rows at a time, sorted by time. The list is empty afterwards, even
    /// after an error. To count losses, read its length before the call.
    pub fn write<R: TraceRow>(&mut self, rows: &mut Vec<R>) -> Result<(), TraceError> {
        if let Some(watcher) = &mut self.watcher {
            R::show(rows, &mut **watcher);
        }
        let samples = R::cpu_samples(rows);
        let result = self.flush().and_then(|()| self.rows(rows));
        // The rows that remain in the list weren't written.
        let written = samples - R::cpu_samples(rows);
        match &mut self.kept {
            Some(kept) => kept.add_samples(written),
            None => self.recorded.samples += written,
        }
        rows.clear();
        result
    }

    /// Writes rows as blocks. Rows that were written are removed from the list.
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
        // Keep some capacity. Otherwise, for a list that soon grows again, the operating system
        // would have to map the pages again.
        rows.shrink_to(ROWS_PER_BLOCK / 8);
        Ok(())
    }

    /// Writes the marks that recording was switched on or off, which stay in the file if only the
    /// last part of what happens is kept.
    fn rows_of_switches(&mut self, marks: &mut Vec<Mark>) -> Result<(), TraceError> {
        if self.kept.is_none() {
            return Ok(());
        }
        let is_switch =
            |mark: &mut Mark| matches!(mark.kind, MarkKind::RecordingOn | MarkKind::RecordingOff);
        let mut switches: Vec<Mark> = marks.extract_if(.., is_switch).collect();
        self.stay(Some(true));
        let written = self.rows(&mut switches);
        self.stay(None);
        marks.append(&mut switches);
        written
    }

    /// Writes marks, and before them the names of steps. If only the last part of what happens is
    /// kept, these go with the marks: a job that goes on for days makes very many.
    fn rows_of_marks(
        &mut self,
        marks: &mut Vec<Mark>,
        step_names: &mut Vec<NameRow>,
    ) -> Result<(), TraceError> {
        if self.kept.is_none() || step_names.is_empty() {
            self.rows(step_names)?;
            return self.rows(marks);
        }
        self.stay(Some(false));
        // Until the marks are written, their names are written again with them.
        let named = self.rows(&mut step_names.clone());
        self.stay(None);
        self.keep_together(true);
        let written = named.and_then(|()| self.rows(marks));
        self.keep_together(false);
        if written.is_ok() {
            step_names.clear();
        }
        written
    }

    fn stay(&mut self, stays: Option<bool>) {
        if let Some(kept) = &mut self.kept {
            kept.stays = stays;
        }
    }

    /// Completes the header, appends the block, and adds it to the index.
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
        if self.kept.as_ref().is_some_and(|kept| kept.takes(header.table)) {
            return self.keep_block(header);
        }
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

    /// Writes a part of the index, so that the index doesn't grow in memory. Each part has the
    /// offset of the previous part, so that readers can follow the chain.
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

    /// Appends `out`. If that fails, cuts the file back to its last whole block.
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

    /// Writes the pending rows and an index, and closes the file. The index saves readers the
    /// search for blocks; a file without an index has the same content but is slower to open.
    pub fn finish(mut self) -> Result<(), TraceError> {
        self.flush()?;
        self.join_segments()?;
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

    /// Like [`Self::finish`], and writes the header of a file that [`Self::create_blank`] created.
    pub fn finish_as(self, header: &TraceHeader) -> Result<(), TraceError> {
        let path = self.path.clone();
        let failed = |source| TraceError::Io { path: path.clone(), what: "write", source };
        self.finish()?;
        let bytes = header.to_bytes_of(BLANK_HEADER_BYTES);
        if bytes.len() != PREFIX_BYTES + BLANK_HEADER_BYTES {
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        // Open the file again, because writes through the append-mode handle would go to the end of
        // the file.
        let file = OpenOptions::new().write(true).open(&path).map_err(failed)?;
        file.write_all_at(&bytes, 0).map_err(failed)
    }
}
