//! Keeps only the last part of what happened: writes it into segments and deletes the oldest.

use super::TraceWriter;
use crate::error::TraceError;
use crate::file::{BlockHeader, NO_PROCESS, TraceHeader};
use crate::kept::{KEEP_MARK, directory_of, passes, segment};
use crate::model::{HeapTotals, Mark, MarkKind, ProcessIndex, Property, RecordingTotals};
use crate::recorded::{self, Recorded};
use crate::scan::IndexRow;
use crate::tables::{Row, TraceRow, table};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What is kept is divided into about this many segments by time, so that little more is kept than
/// was asked for.
const BY_TIME: u64 = 20;
/// The same by size.
const BY_SIZE: u64 = 64;
/// Least size of a segment, bytes.
const LEAST_SEGMENT: u64 = 64 << 10;
/// Largest size of a segment, bytes.
const MOST_SEGMENT: u64 = 64 << 20;

/// The room for the segments of all files of a collector.
#[derive(Debug)]
pub struct KeptRoom {
    /// Size of all segments, bytes.
    used: AtomicU64,
    /// Largest size of all segments, bytes; `u64::MAX` without a limit.
    most: u64,
}

impl KeptRoom {
    /// Returns room for this many bytes, or for any number.
    pub fn new(bytes: Option<u64>) -> Arc<KeptRoom> {
        Arc::new(KeptRoom { used: AtomicU64::new(0), most: bytes.unwrap_or(u64::MAX) })
    }

    fn segment_bytes(&self) -> u64 {
        (self.most / BY_SIZE).clamp(LEAST_SEGMENT, MOST_SEGMENT)
    }
}

/// The segments of a file that is being written.
pub(super) struct Kept {
    directory: PathBuf,
    room: Arc<KeptRoom>,
    /// The oldest is first; blocks are appended to the last.
    segments: VecDeque<Segment>,
    /// The last segment, open for appending; `None` if the next block begins another.
    last: Option<File>,
    /// Number of the next segment.
    next: u64,
    /// Latest time in all segments that were closed, ns.
    closed_ns: u64,
    /// Longest time that a segment spans, ns.
    span_ns: u64,
    /// Everything after this time is kept, ns; 0 if everything is.
    since_ns: u64,
    /// Whether the next blocks belong into the segment of the one before.
    is_together: bool,
    /// Whether the rows that are written now stay or pass, if their table doesn't decide that.
    pub stays: Option<bool>,
    last_totals: LastTotals,
}

/// The last totals of each process. Those of a process that has ended may be in no segment any more.
#[derive(Clone, Default)]
pub(super) struct LastTotals {
    heap: FxHashMap<ProcessIndex, HeapTotals>,
    recording: FxHashMap<ProcessIndex, RecordingTotals>,
}

impl LastTotals {
    /// Adds the totals from before a time to a file.
    fn write_before(&self, since_ns: u64, to: &mut TraceWriter) {
        let heap = self.heap.values().filter(|row| row.time_ns < since_ns);
        heap.for_each(|row| to.totals(*row));
        let recording = self.recording.values().filter(|row| row.time_ns < since_ns);
        recording.for_each(|row| to.recording(*row));
    }
}

/// A file of whole blocks.
struct Segment {
    path: PathBuf,
    /// Blocks, with their offsets in this file.
    blocks: Vec<IndexRow>,
    bytes: u64,
    /// Latest time in the first block that has times, ns; 0 if no block has.
    begun_ns: u64,
    /// Latest time in any block, ns.
    last_ns: u64,
    /// Everything after this time is in this segment and later ones, ns.
    since_ns: u64,
    recorded: Recorded,
}

impl Kept {
    fn new(directory: PathBuf, room: Arc<KeptRoom>) -> Kept {
        Kept {
            directory,
            room,
            segments: VecDeque::new(),
            last: None,
            next: 0,
            closed_ns: 0,
            span_ns: u64::MAX,
            since_ns: 0,
            is_together: false,
            stays: None,
            last_totals: LastTotals::default(),
        }
    }

    /// Whether a block of this table goes into a segment.
    pub fn takes(&self, id: u16) -> bool {
        self.stays.map_or(passes(id), |stays| !stays)
    }

    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    pub fn recorded(&self) -> Recorded {
        self.segments.iter().map(|segment| segment.recorded).sum()
    }

    pub fn add_samples(&mut self, samples: u64) {
        if let Some(last) = self.segments.back_mut() {
            last.recorded.samples += samples;
        }
    }

    /// Whether the next block must begin another segment.
    fn is_full(&self) -> bool {
        self.last.is_none()
            || !self.is_together
                && self.segments.back().is_none_or(|last| {
                    last.bytes >= self.room.segment_bytes()
                        || last.last_ns.saturating_sub(last.begun_ns) > self.span_ns
                })
    }

    /// Ends the last segment, so that it is never written again.
    fn close_last(&mut self) {
        if self.last.take().is_some()
            && let Some(last) = self.segments.back()
        {
            self.closed_ns = self.closed_ns.max(last.last_ns);
        }
    }

    /// Begins another segment. Returns since when everything is in it and later ones.
    fn begin(&mut self) -> io::Result<u64> {
        self.close_last();
        let path = segment(&self.directory, self.next);
        let open = || OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path);
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Not the directory of the run: somebody may have moved it, and may move it back.
                DirBuilder::new().mode(0o700).create(&self.directory)?;
                open()?
            }
            opened => opened?,
        };
        self.next += 1;
        self.last = Some(file);
        self.segments.push_back(Segment {
            path,
            blocks: Vec::new(),
            bytes: 0,
            begun_ns: 0,
            last_ns: 0,
            since_ns: self.closed_ns,
            recorded: Recorded::default(),
        });
        Ok(self.closed_ns)
    }

    /// Appends a block to the last segment. If that fails, the segment still ends with a whole
    /// block, or no more blocks are added to it.
    fn append(&mut self, block: &[u8], header: BlockHeader) -> io::Result<()> {
        let (Some(file), Some(segment)) = (&mut self.last, self.segments.back_mut()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        if let Err(error) = file.write_all(block) {
            if file.set_len(segment.bytes).is_err() {
                self.close_last();
            }
            return Err(error);
        }
        segment.blocks.push(IndexRow { offset: segment.bytes, header });
        segment.bytes += block.len() as u64;
        self.room.used.fetch_add(block.len() as u64, Relaxed);
        if segment.begun_ns == 0 {
            segment.begun_ns = header.last_ns;
        }
        segment.last_ns = segment.last_ns.max(header.last_ns);
        if recorded::is_event(header.table) {
            segment.recorded.events += u64::from(header.rows);
        }
        Ok(())
    }

    /// Deletes the oldest segment, unless blocks are still added to it. Returns whether it did.
    fn delete_oldest(&mut self) -> bool {
        if self.segments.len() < 2 {
            return false;
        }
        let Some(oldest) = self.segments.pop_front() else { return false };
        let _ = fs::remove_file(&oldest.path);
        self.room.used.fetch_sub(oldest.bytes, Relaxed);
        self.since_ns = self.segments.front().map_or(0, |next| next.since_ns);
        true
    }

    /// Makes room for a block.
    fn make_room(&mut self, bytes: u64) {
        while self.room.used.load(Relaxed).saturating_add(bytes) > self.room.most
            && self.delete_oldest()
        {}
    }
}

/// A copy of what a file keeps, to be written while more is recorded.
pub struct KeptCopy {
    /// The trace file, and how much of it is copied.
    file: File,
    bytes: u64,
    index: Vec<IndexRow>,
    index_part: u64,
    segments: Vec<(File, Vec<IndexRow>)>,
    recorded: Recorded,
    since_ns: u64,
    last_totals: LastTotals,
    /// Number of names that the copied part may have.
    names: u32,
}

impl KeptCopy {
    /// Returns what the copy contains.
    pub fn recorded(&self) -> Recorded {
        self.recorded
    }

    /// Returns the time after which everything was kept, ns; 0 if everything was.
    pub fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// Writes the copy as a whole trace file, with properties that it has alone: keys, and values as
    /// text. Fails if the file exists. It may be written several times, one after the other.
    pub fn write(&self, path: &Path, properties: &[(&str, &str)]) -> Result<(), TraceError> {
        let failed = |what| move |source| TraceError::Io { path: path.to_path_buf(), what, source };
        let options = OpenOptions::new().append(true).create_new(true).mode(0o600).clone();
        let mut copy = options.open(path).map_err(failed("create"))?;
        (&self.file).rewind().map_err(failed("read"))?;
        let written = io::copy(&mut (&self.file).take(self.bytes), &mut copy);
        match written.map_err(failed("write"))? {
            bytes if bytes == self.bytes => {}
            _ => return Err(failed("write")(io::ErrorKind::UnexpectedEof.into())),
        }
        let mut writer = TraceWriter::of(path, copy, self.bytes)?;
        (writer.index, writer.index_part) = (self.index.clone(), self.index_part);
        writer.last_name = self.names;
        for (file, blocks) in &self.segments {
            writer.append_blocks(file, blocks)?;
        }
        self.last_totals.write_before(self.since_ns, &mut writer);
        for (key, value) in properties {
            let (key, value) = (writer.name(key), writer.name(value));
            writer.property(Property { key, value });
        }
        writer.finish()
    }
}

impl TraceWriter {
    /// Like [`Self::create`], but of what happens only the last part is kept, in segments in the
    /// directory `segments` beside the file. [`Self::forget_before`] and the size of `room` limit
    /// it.
    pub fn create_keeping(
        path: &Path,
        header: &TraceHeader,
        segments: &str,
        room: Arc<KeptRoom>,
    ) -> Result<TraceWriter, TraceError> {
        let header = TraceHeader { segments: segments.to_owned(), ..header.clone() };
        let mut writer = TraceWriter::create(path, &header)?;
        writer.kept = directory_of(path, segments).map(|directory| Kept::new(directory, room));
        // The name is written before the first mark that uses it.
        writer.name(KEEP_MARK);
        Ok(writer)
    }

    /// Deletes the segments of which everything happened before this time, ns.
    pub fn forget_before(&mut self, time_ns: u64, now_ns: u64) {
        let Some(kept) = &mut self.kept else { return };
        kept.span_ns = now_ns.saturating_sub(time_ns) / BY_TIME;
        while kept.segments.front().is_some_and(|oldest| oldest.last_ns < time_ns)
            && kept.delete_oldest()
        {}
    }

    /// Returns the time after which everything is kept, ns; 0 if everything is.
    pub fn kept_since_ns(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.since_ns)
    }

    /// Prepares a copy of what is kept now, which another thread can write. The rows that wait are
    /// written before. `None` if the file keeps everything.
    pub fn copy_kept(&mut self) -> Result<Option<KeptCopy>, TraceError> {
        self.flush()?;
        let (recorded, index, bytes) = (self.recorded(), self.index.clone(), self.length);
        let names = self.last_name;
        let Some(kept) = &mut self.kept else { return Ok(None) };
        kept.close_last();
        let open = |path: &Path| {
            File::open(path).map_err(|source| {
                let (path, what) = (path.to_path_buf(), "read");
                TraceError::Io { path, what, source }
            })
        };
        let segments: Result<Vec<_>, TraceError> = (kept.segments.iter())
            .map(|segment| Ok((open(&segment.path)?, segment.blocks.clone())))
            .collect();
        let (since_ns, last_totals) = (kept.since_ns, kept.last_totals.clone());
        let (segments, file) = (segments?, open(&self.path)?);
        let index_part = self.index_part;
        Ok(Some(KeptCopy {
            file,
            bytes,
            index,
            index_part,
            segments,
            recorded,
            since_ns,
            last_totals,
            names,
        }))
    }

    /// Sets whether the next blocks belong into the segment of the one before.
    pub(super) fn keep_together(&mut self, is_together: bool) {
        if let Some(kept) = &mut self.kept {
            kept.is_together = is_together;
        }
    }

    /// Writes rows of a table that stays into the segments, for readers of a run that still lasts or
    /// was killed. The caller writes them again, so that they stay. Returns whether the file has
    /// segments.
    pub fn show<R: TraceRow + Clone>(&mut self, rows: &[R]) -> Result<bool, TraceError> {
        if self.kept.is_none() {
            return Ok(false);
        }
        self.stay(Some(false));
        let written = self.rows(&mut rows.to_vec());
        self.stay(None);
        written.map(|()| true)
    }

    /// Appends a block of what happened to a segment.
    pub(super) fn keep_block(&mut self, header: BlockHeader) -> Result<(), TraceError> {
        if self.kept.as_ref().is_some_and(Kept::is_full) {
            let begun = self.kept.as_mut().map_or(Ok(0), Kept::begin);
            let since_ns = begun.map_err(|source| self.failed(source))?;
            // The caller's block is in `out`.
            let block = std::mem::take(&mut self.out);
            let marked = self.mark_segment(since_ns);
            self.out = block;
            marked?;
        }
        let Some(kept) = &mut self.kept else { return Ok(()) };
        kept.make_room(self.out.len() as u64);
        kept.append(&self.out, header).map_err(|source| self.failed(source))
    }

    /// Writes the mark with which a segment begins.
    fn mark_segment(&mut self, since_ns: u64) -> Result<(), TraceError> {
        let name = self.name(KEEP_MARK);
        let kind = MarkKind::RecordingOn;
        let mark = [Mark { time_ns: since_ns, process: None, name, kind }];
        // Without times, so that the segment doesn't seem to begin with the end of another.
        let (table, rows, process) = (table::MARKS, 1, NO_PROCESS);
        let header = BlockHeader { table, rows, process, ..BlockHeader::default() };
        self.block(header, |columns| Mark::write(&mark, columns))
    }

    /// Appends blocks that another file has, which follow each other there.
    fn append_blocks(&mut self, mut from: &File, blocks: &[IndexRow]) -> Result<(), TraceError> {
        from.rewind().map_err(|source| self.failed(source))?;
        for block in blocks {
            let bytes = block.header.bytes();
            // What was only shown is in the file.
            if block.header.table == table::HISTORY {
                from.seek_relative(bytes as i64).map_err(|source| self.failed(source))?;
                continue;
            }
            self.out.clear();
            from.take(bytes).read_to_end(&mut self.out).map_err(|source| self.failed(source))?;
            if self.out.len() as u64 != bytes {
                return Err(self.failed(io::ErrorKind::UnexpectedEof.into()));
            }
            let offset = self.length;
            self.append()?;
            self.index.push(IndexRow { offset, header: block.header });
            if self.index.len() >= super::INDEX_ROWS {
                self.index_block()?;
            }
        }
        Ok(())
    }

    /// Moves the segments into the file. If that fails, those that remain are still read with it.
    pub(super) fn join_segments(&mut self) -> Result<(), TraceError> {
        let Some(mut kept) = self.kept.take() else { return Ok(()) };
        kept.close_last();
        let joined = kept.recorded();
        let since_ns = kept.since_ns;
        while let Some(segment) = kept.segments.pop_front() {
            let opened = File::open(&segment.path).map_err(|source| self.failed(source))?;
            self.append_blocks(&opened, &segment.blocks)?;
            let _ = fs::remove_file(&segment.path);
            kept.room.used.fetch_sub(segment.bytes, Relaxed);
        }
        self.recorded += joined;
        kept.last_totals.write_before(since_ns, self);
        // It isn't empty if anyone else wrote into it.
        let _ = fs::remove_dir(&kept.directory);
        Ok(())
    }

    /// Notes the last totals of a process.
    pub(super) fn note_totals(&mut self, row: &HeapTotals) {
        if let Some(kept) = &mut self.kept {
            kept.last_totals.heap.insert(row.process, *row);
        }
    }

    /// Notes the last totals of the recording of a process.
    pub(super) fn note_recording(&mut self, row: &RecordingTotals) {
        if let Some(kept) = &mut self.kept {
            kept.last_totals.recording.insert(row.process, *row);
        }
    }
}
