//! Opens one `.tprof`. It loads small tables into memory, and reads heap events, mapping events and
//! large tables on demand.
//!
//! The reader treats the file as hostile: it checks lengths before it allocates memory, and skips
//! and reports damaged parts.

use crate::damage_list::DamageList;
use crate::error::{Damage, Problem, TraceError};
use crate::file::{BlockHeader, MAGIC, PREFIX_BYTES, Prefix, TraceHeader};
use crate::kept::{self, KEEP_MARK};
use crate::loaded::Tables;
use crate::model::*;
use crate::plain_file::open_plain;
use crate::planes::PlaneReader;
use crate::scan::{IndexRow, Source, note};
use crate::tables::{TracePart, table};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Maximum size of the header's JSON, bytes.
const MAX_HEADER_BYTES: u64 = 1 << 20;
/// One trace file, open for reading. The file may still be growing. Only what it contained when it
/// was opened is read.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    header: TraceHeader,
    source: Source,
    problems: Vec<Problem>,
    /// Both `problems` and the damage that readers of large tables met.
    unread: DamageList,
    heap_blocks: Vec<IndexRow>,
    map_blocks: Vec<IndexRow>,
    /// The blocks of the large tables, in the order of the file.
    row_blocks: Vec<IndexRow>,
    tables: Tables,
    last_ns: u64,
    closed: bool,
    /// The part of the file that is read; `None` if all of it is read.
    only: Option<FilePart>,
    /// The same for the figures of steps, which are kept when the rest of what happened is deleted.
    only_history: Option<FilePart>,
    kept_since_ns: Option<u64>,
}

/// A part of a file. Each interval includes its beginning and excludes its end; times are
/// CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePart {
    /// An event is read only if it begins in one of these intervals.
    pub times_ns: Vec<(u64, u64)>,
    /// The parts of these intervals in which recording was on.
    pub recorded_ns: Vec<(u64, u64)>,
    /// If devices still worked for this part after its last interval, the time when that work
    /// ended. Kernels and copies that begin before that time belong to the part.
    pub device_until_ns: Option<u64>,
}

impl FilePart {
    /// Whether a row of a table that began at this time belongs to the part.
    fn has(&self, table: u16, time_ns: u64) -> bool {
        is_within(&self.times_ns, time_ns)
            || matches!(table, table::KERNELS | table::COPIES)
                && self.device_until_ns.is_some_and(|until| time_ns < until)
                && self.times_ns.iter().map(|(_, to)| *to).max().is_some_and(|to| to <= time_ns)
    }

    /// Returns the part without what lies before a time, ns.
    fn since(self, since_ns: u64) -> FilePart {
        let clip = |times: Vec<(u64, u64)>| {
            let later = times.into_iter().map(|(from, to)| (from.max(since_ns), to));
            later.filter(|(from, to)| from < to).collect()
        };
        FilePart {
            times_ns: clip(self.times_ns),
            recorded_ns: clip(self.recorded_ns),
            device_until_ns: self.device_until_ns,
        }
    }

    /// Whether rows of a block may belong to the part. A block whose header has no times may
    /// contain such rows.
    pub(crate) fn may_hold(&self, block: &BlockHeader) -> bool {
        let from = self.times_ns.iter().map(|(from, _)| *from).min();
        let to = self.times_ns.iter().map(|(_, to)| *to).max().max(self.device_until_ns);
        let (Some(from), Some(to)) = (from, to) else { return true };
        block.last_ns == 0 || block.last_ns >= from && block.first_ns < to
    }
}

impl TraceFile {
    /// Opens a file and reads its small tables.
    ///
    /// A part that is cut off or damaged isn't an error; see [`Self::problems`].
    pub fn open(path: &Path) -> Result<TraceFile, TraceError> {
        let failed = |what| move |source| TraceError::Io { path: path.to_path_buf(), what, source };
        let (mut source, prefix) = open_prefix(path)?;
        let mut planes = PlaneReader::new().map_err(failed("read"))?;
        let mut problems = Vec::new();
        let header = body(&source, &prefix).map_err(failed("read"))?;
        let header = header.unwrap_or_else(|Damage(what)| {
            note(&mut problems, 0, what);
            TraceHeader::default()
        });
        // Without a valid length, the first block's place is unknown, so search for it from here.
        let start = PREFIX_BYTES as u64 + if prefix.sound { u64::from(prefix.body) } else { 0 };
        let indexed = source.indexed(start, &mut planes);
        let is_indexed = indexed.is_some();
        let blocks = match indexed {
            Some(blocks) => blocks,
            None => {
                if let Some(directory) = kept::directory_of(path, &header.segments) {
                    kept::add_segments(&mut source, &directory).map_err(failed("read"))?;
                }
                source.walked(start, &mut problems).map_err(failed("read"))?
            }
        };
        // The index doesn't list the end block that closes it.
        let closed =
            is_indexed || blocks.last().is_some_and(|block| block.header.table == table::END);
        let mut file = TraceFile {
            path: path.to_path_buf(),
            header,
            source,
            problems,
            unread: DamageList::default(),
            heap_blocks: Vec::new(),
            map_blocks: Vec::new(),
            row_blocks: Vec::new(),
            tables: Tables::default(),
            last_ns: blocks.iter().map(|block| block.header.last_ns).max().unwrap_or(0),
            closed,
            only: None,
            only_history: None,
            kept_since_ns: None,
        };
        file.load(&blocks, &mut planes);
        file.take_keep_marks();
        if let Some(since_ns) = file.kept_since_ns() {
            let times_ns = vec![(since_ns, u64::MAX)];
            let recorded_ns = times_ns.clone();
            file.read_only(FilePart { times_ns, recorded_ns, device_until_ns: None });
            file.only_history = None;
        }
        file.problems.iter().for_each(|problem| file.unread.add(problem));
        Ok(file)
    }

    /// Reads only the header of a file.
    pub fn read_header(path: &Path) -> Result<TraceHeader, TraceError> {
        let (source, prefix) = open_prefix(path)?;
        match body(&source, &prefix) {
            Ok(header) => Ok(header.unwrap_or_default()),
            Err(source) => Err(TraceError::Io { path: path.to_path_buf(), what: "read", source }),
        }
    }

    fn load(&mut self, blocks: &[IndexRow], planes: &mut PlaneReader) {
        let mut payload = Vec::new();
        let mut budget = self.source.memory_limit();
        for block in blocks {
            match block.header.table {
                table::HEAP_EVENTS => self.heap_blocks.push(*block),
                table::MAP_EVENTS => self.map_blocks.push(*block),
                id if table::is_large(id) => self.row_blocks.push(*block),
                _ => {
                    let loaded = match budget.checked_sub(u64::from(block.header.raw_len)) {
                        Some(left) => {
                            budget = left;
                            self.tables.load(&self.source, block, &mut payload, planes)
                        }
                        None => Err(Damage::new(
                            "a block would fill more memory than its file's size allows",
                        )),
                    };
                    if let Err(Damage(what)) = loaded {
                        let table = block.header.table;
                        note(&mut self.problems, block.offset, format!("{what} (table {table})"));
                    }
                }
            }
        }
        self.tables.settle();
    }

    /// Restricts reading to a part of the file. Large tables, heap events and mapping events then
    /// return only what began within the part, and marks outside of it are removed. Small tables,
    /// and counts from block headers, still cover the whole file. A caller selects the readings of
    /// the part by [`Self::holds`].
    pub fn read_only(&mut self, part: FilePart) {
        self.tables.marks.retain(|mark| {
            matches!(mark.kind, MarkKind::RecordingOn | MarkKind::RecordingOff)
                || is_within(&part.times_ns, mark.time_ns)
        });
        self.only_history = Some(part.clone());
        self.only = Some(match self.kept_since_ns() {
            Some(since_ns) => part.since(since_ns),
            None => part,
        });
    }

    /// Returns the time after which everything was kept, ns; `None` if nothing that happened was
    /// deleted again. An event from before may be in the file, but others are missing.
    pub fn kept_since_ns(&self) -> Option<u64> {
        self.kept_since_ns
    }

    /// Removes the marks with which segments begin. The earliest tells since when everything is
    /// there.
    fn take_keep_marks(&mut self) {
        let Tables { names, marks, .. } = &mut self.tables;
        let is_of_segment = |mark: &mut Mark| {
            let of_session = mark.process.is_none() && mark.kind == MarkKind::RecordingOn;
            of_session && names.get(&mark.name.0).is_some_and(|name| **name == *KEEP_MARK)
        };
        let begun = marks.extract_if(.., is_of_segment).map(|mark| mark.time_ns).min();
        self.kept_since_ns = begun.filter(|since_ns| *since_ns > 0);
    }

    /// Returns the part that is read; `None` if all of the file is read.
    pub fn part(&self) -> Option<&FilePart> {
        self.only.as_ref()
    }

    /// Returns the part of a table that is read; `None` if all of it is read.
    pub(crate) fn part_of(&self, table: u16) -> Option<&FilePart> {
        match table {
            table::HISTORY => self.only_history.as_ref(),
            _ => self.only.as_ref(),
        }
    }

    /// Whether a reading at this time counts: it lies in the part that is read, and recording was
    /// on.
    pub fn holds(&self, time_ns: u64) -> bool {
        self.part().is_none_or(|part| is_within(&part.recorded_ns, time_ns))
    }

    /// Whether rows that began at this time are read.
    pub(crate) fn reads(&self, time_ns: u64) -> bool {
        self.part().is_none_or(|part| is_within(&part.times_ns, time_ns))
    }

    /// Whether rows of this table that began at this time are read.
    pub(crate) fn reads_rows(&self, table: u16, time_ns: u64) -> bool {
        self.part_of(table).is_none_or(|part| part.has(table, time_ns))
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    pub(crate) fn heap_blocks(&self) -> &[IndexRow] {
        &self.heap_blocks
    }

    pub(crate) fn row_blocks(&self) -> &[IndexRow] {
        &self.row_blocks
    }

    pub(crate) fn map_blocks(&self) -> &[IndexRow] {
        &self.map_blocks
    }

    /// Returns the file's description of itself.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size of the file when it was opened, bytes.
    pub fn bytes(&self) -> u64 {
        self.source.length
    }

    /// Whether the recorder closed the file properly. If not, the file is still being written, or
    /// was cut off. If a file was cut between two blocks, this is the only sign.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the parts that couldn't be read when the file was opened: its header, small tables,
    /// and bytes between blocks.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns everything that couldn't be read so far. This includes the blocks of large tables
    /// that any reader failed to read.
    pub fn unread(&self) -> &DamageList {
        &self.unread
    }

    /// Records that a block can't be decoded, both in the problems of the reader that met it and in
    /// the list for all readers.
    pub(crate) fn note(&self, problems: &mut Vec<Problem>, offset: u64, what: String) {
        self.unread.add(&Problem { offset, what: what.clone() });
        note(problems, offset, what);
    }

    /// Returns an interned string; empty if the id isn't known.
    pub fn name(&self, id: NameId) -> &str {
        self.tables.names.get(&id.0).map_or("", |name| name)
    }

    /// Returns all process images, by index.
    pub fn processes(&self) -> &[Process] {
        &self.tables.processes
    }

    /// Returns a process image by its index.
    pub fn process(&self, process: ProcessIndex) -> Option<&Process> {
        let rows = self.processes();
        let at = rows.binary_search_by_key(&process, |row| row.process).ok()?;
        rows.get(at)
    }

    /// Returns when and how a process image ended, if that was recorded.
    pub fn process_end(&self, process: ProcessIndex) -> Option<(u64, ProcessEnd)> {
        self.tables.process_ends.get(&process).copied()
    }

    /// Returns all threads, by index.
    pub fn threads(&self) -> &[Thread] {
        &self.tables.threads
    }

    /// Returns a thread by its index.
    pub fn thread(&self, thread: ThreadIndex) -> Option<&Thread> {
        let rows = self.threads();
        let at = rows.binary_search_by_key(&thread, |row| row.thread).ok()?;
        rows.get(at)
    }

    /// Returns a thread's last name, if it had one.
    pub fn thread_name(&self, thread: ThreadIndex) -> Option<&str> {
        self.tables.thread_names.get(&thread).map(|name| self.name(*name))
    }

    /// Returns when a thread ended, if that was recorded.
    pub fn thread_end(&self, thread: ThreadIndex) -> Option<u64> {
        self.tables.thread_ends.get(&thread).copied()
    }

    /// Returns the executable mappings, in the order of their records.
    pub fn modules(&self) -> &[Module] {
        &self.tables.modules
    }

    /// Returns all stacks, in the order in which they were written.
    pub fn stacks(&self) -> &[Stack] {
        &self.tables.stacks
    }

    pub(crate) fn tables_mut(&mut self) -> &mut Tables {
        &mut self.tables
    }

    /// Returns a stack, if it was recorded.
    pub fn stack(&self, process: ProcessIndex, stack: StackId) -> Option<&Stack> {
        let row = self.tables.stack_rows.get(&(process, stack))?;
        self.tables.stacks.get(*row as usize)
    }

    /// Returns the functions at an address, the innermost inlined one first; empty if unknown.
    pub fn symbols(&self, process: ProcessIndex, address: u64) -> &[Symbol] {
        let symbols = &self.tables.symbols;
        let start = symbols.partition_point(|s| (s.process, s.address) < (process, address));
        let count =
            symbols[start..].partition_point(|s| (s.process, s.address) == (process, address));
        &symbols[start..start + count]
    }

    /// Returns the exact totals, in order of time.
    pub fn totals(&self) -> &[HeapTotals] {
        &self.tables.totals
    }

    /// Returns the totals of the work of recording in each process, in order of time.
    pub fn recording(&self) -> &[RecordingTotals] {
        &self.tables.recording
    }

    /// Returns the measured quantities, in order of time.
    pub fn counters(&self) -> &[Counter] {
        &self.tables.counters
    }

    /// Returns the marks, in order of time.
    pub fn marks(&self) -> &[Mark] {
        &self.tables.marks
    }

    /// Returns the losses, in order of time.
    pub fn losses(&self) -> &[Loss] {
        &self.tables.losses
    }

    /// Returns the devices, by process and number.
    pub fn devices(&self) -> &[Device] {
        &self.tables.devices
    }

    /// Returns the operating system kernel's counts for threads.
    pub fn thread_counts(&self) -> &[ThreadCounts] {
        &self.tables.thread_counts
    }

    /// Returns the streams that have a name or a priority, by process, device, context and number.
    pub fn streams(&self) -> &[Stream] {
        &self.tables.streams
    }

    /// Returns the communicators, by process and number.
    pub fn communicators(&self) -> &[Communicator] {
        &self.tables.communicators
    }

    /// Returns a communicator of a process.
    pub fn communicator(&self, process: ProcessIndex, communicator: u64) -> Option<&Communicator> {
        let rows = self.communicators();
        let key = (process, communicator);
        let at = rows.binary_search_by_key(&key, |row| (row.process, row.communicator)).ok()?;
        rows.get(at)
    }

    /// Returns the moments that were read on two clocks, in order of time.
    pub fn clock_joins(&self) -> &[ClockJoin] {
        &self.tables.clock_joins
    }

    /// Returns a property of the file, as JSON.
    pub fn property(&self, key: &str) -> Option<&str> {
        let row = self.tables.properties.iter().find(|row| self.name(row.key) == key)?;
        Some(self.name(row.value))
    }

    /// Returns all properties of the file: keys, and values as JSON.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tables.properties.iter().map(|row| (self.name(row.key), self.name(row.value)))
    }

    /// Returns all interned strings, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = (NameId, &str)> {
        self.tables.names.iter().map(|(id, name)| (NameId(*id), &**name))
    }

    /// Returns the highest id of an interned string. Ids run from 1 and may have gaps.
    pub fn last_name(&self) -> NameId {
        NameId(self.tables.names.keys().copied().max().unwrap_or(0))
    }

    /// Returns the earliest and the latest time in any table; `None` if no row has a time.
    pub fn extent_ns(&self) -> Option<(u64, u64)> {
        let blocks = self.row_blocks.iter().chain(&self.heap_blocks).chain(&self.map_blocks);
        let blocks = blocks.map(|block| (block.header.first_ns, block.header.last_ns));
        let instant = |time_ns: u64| (time_ns, time_ns);
        let ends = self.processes().iter().filter_map(|row| self.process_end(row.process));
        let rows = (self.processes().iter().map(|row| row.start_ns))
            .chain(ends.map(|(end_ns, _)| end_ns))
            .chain(self.threads().iter().map(|row| row.start_ns))
            .chain(self.totals().iter().map(|row| row.time_ns))
            .chain(self.counters().iter().map(|row| row.time_ns))
            .chain(self.marks().iter().map(|row| row.time_ns));
        let all = blocks.chain(rows.map(instant));
        let all = all.filter(|(first_ns, last_ns)| *first_ns > 0 && *last_ns < u64::MAX);
        all.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Returns the latest time in any block; 0 if no block has a time.
    pub fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Returns the number of rows of a large table, including those in undecodable blocks.
    pub fn row_count<R: TracePart>(&self) -> u64 {
        let blocks = self.row_blocks.iter().filter(|block| block.header.table == R::TABLE);
        blocks.map(|block| u64::from(block.header.rows)).sum()
    }

    /// Returns the number of heap events in the file, including those in undecodable blocks.
    pub fn heap_event_count(&self) -> u64 {
        self.heap_blocks.iter().map(|block| u64::from(block.header.rows)).sum()
    }
}

fn is_within(times_ns: &[(u64, u64)], time_ns: u64) -> bool {
    times_ns.iter().any(|(from, to)| (*from..*to).contains(&time_ns))
}

fn open_prefix(path: &Path) -> Result<(Source, Prefix), TraceError> {
    let failed = |what| move |source| TraceError::Io { path: path.to_path_buf(), what, source };
    prefix_of(open_plain(path).map_err(failed("open"))?, path)
}

/// Reads the first bytes of an open file. The path is used only in errors.
pub(crate) fn prefix_of(file: File, path: &Path) -> Result<(Source, Prefix), TraceError> {
    let failed = |what| move |source| TraceError::Io { path: path.to_path_buf(), what, source };
    let metadata = file.metadata().map_err(failed("open"))?;
    let length = metadata.len();
    let mut bytes = vec![0; length.min(PREFIX_BYTES.max(MAGIC.len()) as u64) as usize];
    file.read_exact_at(&mut bytes, 0).map_err(failed("read"))?;
    let prefix = Prefix::parse(&bytes, path)?;
    if prefix.sound && PREFIX_BYTES as u64 + u64::from(prefix.body) > length {
        return Err(TraceError::CutOff { path: path.to_path_buf() });
    }
    Ok((Source::of(file, length), prefix))
}

/// Reads the JSON of the header.
pub(crate) fn body(source: &Source, prefix: &Prefix) -> io::Result<Result<TraceHeader, Damage>> {
    let length = u64::from(prefix.body);
    if !prefix.sound || length > MAX_HEADER_BYTES {
        return Ok(Err(Damage::new("the file's header does not match its checksum")));
    }
    let mut bytes = vec![0; length as usize];
    source.read_exact_at(&mut bytes, PREFIX_BYTES as u64)?;
    if crc32fast::hash(&bytes) != prefix.body_crc {
        return Ok(Err(Damage::new("the file's header does not match its checksum")));
    }
    Ok(serde_json::from_slice(&bytes)
        .map_err(|error| Damage::new(format!("the file's header: {error}"))))
}
