//! Reads a `.tprof` that is still growing. Each call returns what was added since the previous
//! call, so no row is returned twice.
//!
//! A [`TraceTail`] is a position in a file and doesn't keep the file open. A reader of a thousand
//! ranks can therefore open one file at a time, and decode all files with one [`TailDecoder`].
//! Small tables that change while a job runs are always decoded, and large tables only if the
//! caller asks for them. Of other blocks, only the headers are counted. A block that is still
//! incomplete is read by a later call. The file is treated as hostile, as in [`crate::TraceFile`].

mod segments;
mod stacks;

use crate::columns_read::Columns;
use crate::error::{Damage, TraceError};
use crate::file::{BLOCK_HEADER_BYTES, BlockHeader, PREFIX_BYTES, TraceHeader};
use crate::model::*;
use crate::planes::PlaneReader;
use crate::reader::{body, prefix_of};
use crate::recorded::is_event;
use crate::scan::{IndexRow, Source};
use crate::tables::{NameRow, Part, ProcessEndRow, SpanTitle, ThreadNameRow, table};
use crate::tail_names::TailNames;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use segments::SegmentPlace;
pub use stacks::StackFunction;

/// After a call has decoded this many bytes, it returns, and sets [`TailUpdate::more`].
const CALL_BYTES: u64 = 32 << 20;
/// Maximum number of blocks that one call goes through.
const CALL_BLOCKS: usize = 1 << 16;
/// Number of rows of the history that are recognized when they come again, with a block that has the
/// rows of a minute.
const MOST_HISTORY: usize = 1024;

/// Which of the large tables to decode.
#[derive(Clone, Copy, Debug, Default)]
pub struct TailOptions {
    /// Selects spans by kind and name; `None` decodes no span.
    pub spans: Option<fn(SpanKind, &str) -> bool>,
    /// Whether to decode the samples of threads.
    pub samples: bool,
    /// Whether to decode the actions of caching allocators.
    pub allocator_events: bool,
}

/// The rows that were added since the call before.
#[derive(Debug, Default)]
pub struct TailUpdate {
    /// Whether the file was replaced or began again. The caller must then discard everything read
    /// from it before.
    pub restarted: bool,
    /// Whether more rows are already in the file, so that the caller should call again at once.
    pub more: bool,
    /// New process images.
    pub processes: Vec<Process>,
    /// Ends of process images.
    pub process_ends: Vec<(ProcessIndex, u64, ProcessEnd)>,
    /// Threads that began.
    pub threads: Vec<Thread>,
    /// Names of threads.
    pub thread_names: Vec<(ThreadIndex, NameId)>,
    /// New measured quantities.
    pub counters: Vec<Counter>,
    /// Totals of heaps.
    pub totals: Vec<HeapTotals>,
    /// Marks that were made.
    pub marks: Vec<Mark>,
    /// Losses that were reported.
    pub losses: Vec<Loss>,
    /// Figures of steps that are complete.
    pub history: Vec<HistoryRow>,
    /// Spans that [`TailOptions::spans`] selects, each with its name.
    pub spans: Vec<(SpanOutline, Box<str>)>,
    /// Samples, if they were asked for.
    pub samples: Vec<SampleMoment>,
    /// Actions of caching allocators, if they were asked for.
    pub allocator_events: Vec<AllocatorEvent>,
    names: FxHashMap<u32, Box<str>>,
}

/// A position in a growing file.
#[derive(Debug)]
pub struct TraceTail {
    path: PathBuf,
    wants: TailOptions,
    at: Place,
}

/// Decodes blocks of any number of files, one after another.
#[derive(Debug)]
pub struct TailDecoder {
    planes: PlaneReader,
    payload: Vec<u8>,
}

impl TailDecoder {
    /// Creates a decoder. Fails if there is no memory for a decompressor.
    pub fn new() -> io::Result<TailDecoder> {
        Ok(TailDecoder { planes: PlaneReader::new()?, payload: Vec::new() })
    }

    fn rows<R: Part>(&mut self, source: &Source, block: &IndexRow) -> Result<Vec<R>, Damage> {
        source.rows(block, &mut self.payload, &mut self.planes)
    }
}

/// The reader's position in the file, and the facts that it has read so far.
#[derive(Debug, Default)]
struct Place {
    /// The first bytes of the file, once its header has been read.
    prefix: Option<[u8; PREFIX_BYTES]>,
    header: TraceHeader,
    /// Offset of the first block.
    first: u64,
    /// Offset of the first byte that wasn't read yet.
    offset: u64,
    /// Size of the file at the last call, bytes.
    length: u64,
    /// End of the bytes that a search for a block behind a damaged block has covered.
    searched: u64,
    /// Offset of the file's last block, if it didn't match its checksum at the last call. The next
    /// call tries it again, because it may have been incomplete.
    retried: Option<u64>,
    names: TailNames,
    /// Number of bytes that were decoded so far, for small and for large tables.
    decoded: [u64; 2],
    events: u64,
    damaged: u64,
    last_ns: u64,
    closed: bool,
    /// The segments that belong to the file, by their numbers.
    segments: BTreeMap<u64, SegmentPlace>,
    /// Whether the blocks that are read now are those of a segment.
    is_in_segment: bool,
    /// Beginnings of the newest rows of the history, ns.
    history: BTreeSet<u64>,
}

impl Place {
    /// Whether a row of the history wasn't returned yet. A recent one is in a segment, too.
    fn is_new(&mut self, row: &HistoryRow) -> bool {
        let is_new = self.history.insert(row.start_ns);
        while self.history.len() > MOST_HISTORY {
            self.history.pop_first();
        }
        is_new
    }
}

impl TraceTail {
    /// Starts at the beginning of a file. The path is used only in errors.
    pub fn new(path: &Path, wants: TailOptions) -> TraceTail {
        TraceTail { path: path.to_path_buf(), wants, at: Place::default() }
    }

    /// Returns the file's description of itself, once it has been read.
    pub fn header(&self) -> Option<&TraceHeader> {
        self.at.prefix.map(|_| &self.at.header)
    }

    /// Returns the number of events by the headers of blocks, as [`crate::Recorded`] counts them.
    pub fn events(&self) -> u64 {
        self.at.events
    }

    /// Returns the number of skipped parts: damaged blocks, and stretches without a block.
    pub fn damaged(&self) -> u64 {
        self.at.damaged
    }

    /// Returns the size of the file and its segments at the last call, bytes.
    pub fn bytes(&self) -> u64 {
        self.at.length + self.segment_bytes()
    }

    /// Returns the latest time in any block so far; 0 if no block had a time.
    pub fn last_ns(&self) -> u64 {
        self.at.last_ns
    }

    /// Whether the recorder closed the file properly, so that nothing more will follow.
    pub fn is_closed(&self) -> bool {
        self.at.closed
    }

    /// Returns a name that a row of `news` refers to; empty if it isn't known any more.
    pub fn name(
        &mut self,
        news: &TailUpdate,
        file: &File,
        decoder: &mut TailDecoder,
        id: NameId,
    ) -> String {
        let known = news.names.get(&id.0).map(|name| &**name);
        let names = &self.at.names;
        if let Some(name) = known.or_else(|| names.kept(id.0)).or_else(|| names.passing(id.0)) {
            return name.to_owned();
        }
        let source = file.try_clone().map(|file| Source::of(file, self.at.length));
        let find = |source| self.at.names.find(&source, id.0, &mut decoder.planes);
        source.ok().filter(|_| id.0 != 0).and_then(find).unwrap_or_default()
    }

    /// Reads what was added since the last call. If the file's header is incomplete, nothing is
    /// returned.
    ///
    /// Fails if the file can't be read, isn't a tprof file, or has a format that this build doesn't
    /// read. Damage isn't an error; see [`Self::damaged`].
    pub fn read_more(
        &mut self,
        file: &File,
        decoder: &mut TailDecoder,
    ) -> Result<TailUpdate, TraceError> {
        let mut news = TailUpdate::default();
        let length = file.metadata().map_err(|source| self.failed(source))?.len();
        if self.is_unchanged(length) {
            self.read_segments(decoder, &mut news).map_err(|source| self.failed(source))?;
            return Ok(news);
        }
        if self.is_other(file, length) {
            self.at = Place::default();
            news.restarted = true;
        }
        let source = Source::of(self.cloned(file)?, length);
        if self.at.prefix.is_none() && !self.begin(&source)? {
            return Ok(news);
        }
        let steady = self.at.length == length;
        self.at.length = length;
        let walked = self.walk(&source, steady, decoder, &mut news);
        let segments = walked.and_then(|()| self.read_segments(decoder, &mut news));
        segments.map_err(|source| self.failed(source))?;
        Ok(news)
    }

    fn failed(&self, source: io::Error) -> TraceError {
        TraceError::Io { path: self.path.clone(), what: "read", source }
    }

    fn cloned(&self, file: &File) -> Result<File, TraceError> {
        file.try_clone().map_err(|source| self.failed(source))
    }

    /// Whether the file can't have grown since the last call.
    fn is_unchanged(&self, length: u64) -> bool {
        let at = &self.at;
        length == at.length && (at.offset == length || at.searched == length)
    }

    /// Whether the file was replaced by another file.
    fn is_other(&self, file: &File, length: u64) -> bool {
        let Some(before) = self.at.prefix else { return false };
        let mut prefix = [0; PREFIX_BYTES];
        length < self.at.offset || file.read_exact_at(&mut prefix, 0).is_err() || prefix != before
    }

    /// Reads the header. Returns false if it is still incomplete.
    fn begin(&mut self, source: &Source) -> Result<bool, TraceError> {
        let prefix = match prefix_of(self.cloned(source.file())?, &self.path) {
            Ok((_, prefix)) => prefix,
            Err(TraceError::Empty { .. } | TraceError::CutOff { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut bytes = [0; PREFIX_BYTES];
        source.read_exact_at(&mut bytes, 0).map_err(|source| self.failed(source))?;
        let header = body(source, &prefix).map_err(|source| self.failed(source))?;
        self.at.damaged += u64::from(header.is_err());
        self.at.header = header.unwrap_or_default();
        // As in `TraceFile::open`, search for the first block if the header's length is damaged.
        self.at.offset = PREFIX_BYTES as u64 + if prefix.sound { prefix.body.into() } else { 0 };
        self.at.first = self.at.offset;
        self.at.prefix = Some(bytes);
        Ok(true)
    }

    /// Reads block after block, up to the first incomplete one.
    fn walk(
        &mut self,
        source: &Source,
        steady: bool,
        decoder: &mut TailDecoder,
        news: &mut TailUpdate,
    ) -> io::Result<()> {
        let (mut bytes, mut blocks) = (0, 0);
        while self.at.offset + BLOCK_HEADER_BYTES as u64 <= source.length {
            if bytes >= CALL_BYTES || blocks >= CALL_BLOCKS {
                news.more = true;
                return Ok(());
            }
            blocks += 1;
            let offset = self.at.offset;
            let mut head = [0; BLOCK_HEADER_BYTES];
            source.read_exact_at(&mut head, offset)?;
            let Ok(header) = BlockHeader::parse(&head) else {
                match self.behind_damage(source, steady)? {
                    true => continue,
                    false => return Ok(()),
                }
            };
            let end = offset + BLOCK_HEADER_BYTES as u64 + u64::from(header.stored_len);
            if end > source.length {
                // Either the block is still incomplete, or its length is wrong. If its length is
                // wrong, valid blocks lie behind it.
                match self.behind_damage(source, steady)? {
                    true => continue,
                    false => return Ok(()),
                }
            }
            let was_read = self.is_of_segment(&header);
            let taken = match was_read {
                true => Ok(0),
                false => self.take(source, &IndexRow { offset, header }, decoder, news),
            };
            match taken {
                Ok(decoded) => bytes += decoded,
                // The block may be incomplete, because a file system may show a file's new length
                // before its last bytes.
                Err(_) if end == source.length && self.at.retried != Some(offset) => {
                    self.at.retried = Some(offset);
                    return Ok(());
                }
                Err(_) => self.at.damaged += 1,
            }
            self.at.offset = end;
            self.at.last_ns = self.at.last_ns.max(header.last_ns);
            if is_event(header.table) && !was_read {
                self.at.events += u64::from(header.rows);
            }
            self.at.closed = header.table == table::END;
        }
        Ok(())
    }

    /// Moves to the next block behind a damaged or incomplete one. Returns false if there is none
    /// yet.
    ///
    /// Bytes that were searched once are searched again only when there are a quarter more of them,
    /// or when the file stops growing. So the cost of all searches of a file together is
    /// proportional to its size.
    fn behind_damage(&mut self, source: &Source, steady: bool) -> io::Result<bool> {
        let (offset, length) = (self.at.offset, source.length);
        let searched = self.at.searched.saturating_sub(offset);
        if length - offset < searched + searched / 4 && !steady {
            return Ok(false);
        }
        let next = source.search(offset + 1)?;
        self.at.searched = if next.is_some() { 0 } else { length };
        let Some(next) = next else { return Ok(false) };
        self.at.damaged += 1;
        self.at.offset = next;
        Ok(true)
    }

    /// Decodes a block if any of its rows are wanted, and returns the number of decoded bytes.
    fn take(
        &mut self,
        source: &Source,
        block: &IndexRow,
        decoder: &mut TailDecoder,
        news: &mut TailUpdate,
    ) -> Result<u64, Damage> {
        let id = block.header.table;
        let is_large = table::is_large(id);
        if !self.reads(id) {
            return Ok(0);
        }
        let decoded = self.at.decoded[usize::from(is_large)] + u64::from(block.header.raw_len);
        let limit = if is_large { source.rows_limit() } else { source.memory_limit() };
        if decoded > limit {
            return Err(Damage::new("a block would fill more memory than its file's size allows"));
        }
        match id {
            table::NAMES => self.names(source, block, decoder, news)?,
            table::SPANS => self.spans(source, block, decoder, news)?,
            table::PROCESS_ENDS => {
                let rows: Vec<ProcessEndRow> = decoder.rows(source, block)?;
                news.process_ends.extend(rows.into_iter().map(|r| (r.process, r.end_ns, r.end)));
            }
            table::THREAD_NAMES => {
                let rows: Vec<ThreadNameRow> = decoder.rows(source, block)?;
                news.thread_names.extend(rows.into_iter().map(|row| (row.thread, row.name)));
            }
            table::PROCESSES => news.processes.append(&mut decoder.rows(source, block)?),
            table::THREADS => news.threads.append(&mut decoder.rows(source, block)?),
            table::COUNTERS => news.counters.append(&mut decoder.rows(source, block)?),
            table::HEAP_TOTALS => news.totals.append(&mut decoder.rows(source, block)?),
            // The mark with which a segment begins is not one of the job's.
            table::MARKS if block.header.last_ns == 0 => {}
            table::MARKS => news.marks.append(&mut decoder.rows(source, block)?),
            table::LOSSES => news.losses.append(&mut decoder.rows(source, block)?),
            table::HISTORY => {
                let mut rows: Vec<HistoryRow> = decoder.rows(source, block)?;
                rows.retain(|row| self.at.is_new(row));
                news.history.append(&mut rows);
            }
            table::ALLOCATOR_EVENTS => {
                news.allocator_events.append(&mut decoder.rows(source, block)?);
            }
            _ => news.samples.append(&mut decoder.rows(source, block)?),
        }
        self.at.decoded[usize::from(is_large)] = decoded;
        Ok(block.header.raw_len.into())
    }

    /// Whether the blocks of a table are decoded.
    fn reads(&self, id: u16) -> bool {
        match id {
            table::SPANS => self.wants.spans.is_some(),
            table::SAMPLES => self.wants.samples,
            table::ALLOCATOR_EVENTS => self.wants.allocator_events,
            _ => matches!(
                id,
                table::NAMES
                    | table::PROCESS_ENDS
                    | table::THREAD_NAMES
                    | table::PROCESSES
                    | table::THREADS
                    | table::COUNTERS
                    | table::HEAP_TOTALS
                    | table::MARKS
                    | table::LOSSES
                    | table::HISTORY
            ),
        }
    }

    fn names(
        &mut self,
        source: &Source,
        block: &IndexRow,
        decoder: &mut TailDecoder,
        news: &mut TailUpdate,
    ) -> Result<(), Damage> {
        let rows: Vec<NameRow> = decoder.rows(source, block)?;
        let spans = self.wants.spans;
        let is_wanted = |name: &str| {
            let of = |kind| spans.is_some_and(|wants| wants(kind, name));
            [SpanKind::Annotation, SpanKind::Nvtx, SpanKind::Operator].into_iter().any(of)
        };
        if self.at.is_in_segment {
            self.at.names.add_passing(&rows);
        } else {
            self.at.names.add(block.offset, &rows, is_wanted);
        }
        news.names.extend(rows.into_iter().map(|row| (row.id, row.text.into())));
        Ok(())
    }

    /// Reads the spans with a wanted name. If no name in the block is wanted, the other columns
    /// aren't decoded.
    fn spans(
        &mut self,
        source: &Source,
        block: &IndexRow,
        decoder: &mut TailDecoder,
        news: &mut TailUpdate,
    ) -> Result<(), Damage> {
        let Some(wants) = self.wants.spans else { return Ok(()) };
        let TailDecoder { planes, payload } = decoder;
        source.payload(block, payload)?;
        let mut columns = Columns::parse(payload, &block.header, planes)?;
        let titles = SpanTitle::read(&mut columns)?;
        let names = &mut self.at.names;
        let named = |title: &SpanTitle| {
            names.wanted(title.name.0).is_some_and(|name| wants(title.kind, name))
        };
        if !titles.iter().any(named) {
            return Ok(());
        }
        for span in SpanOutline::read(&mut columns)? {
            let name = names.wanted(span.name.0).filter(|name| wants(span.kind, name));
            let Some(name) = name.map(Box::from) else { continue };
            names.used(span.name.0);
            news.spans.push((span, name));
        }
        Ok(())
    }
}
