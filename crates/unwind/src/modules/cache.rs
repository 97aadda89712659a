//! Caches the files that processes run code from, with the state of their unwind tables. Each file
//! is read once.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{Candidate, address_of, candidates, reopen};
use crate::unwind_table::{self, CachedRows, ModulePart, RowSpan, SpanRows};
use tprof_os::maps::{Mapping, read_code_maps};
use tprof_symbols::ModuleFile;
use tprof_symbols::disk_cache::{DiskCache, LibraryKey};
use tprof_symbols::elf::{Elf, FileId, Segment, VDSO, own_vdso};

/// Largest number of files that stay open between being found and being compiled. Other files are
/// opened again by path.
const MAX_OPEN: usize = 128;
/// A file with at least this many bytes of frame information is compiled in parts, and each part
/// only when a stack needs it. Compiling this much takes 6 ms.
const DEFERRED_FROM: u64 = 1 << 20;
/// The tables of a file with at least this many bytes of frame information are stored on disk for
/// later runs. Compiling this much takes 0.4 ms.
const KEPT_FROM: u64 = 64 << 10;
/// Largest number of bytes of tables that wait to be stored on disk. Tables beyond that are not
/// stored.
const MAX_FRESH: usize = 48 << 20;

/// Memory that targets can read and that compiled tables are appended to.
pub trait TableStore {
    /// Appends a table, aligned to 8 bytes, and returns its offset; `None` if no space is left. The
    /// offset is never 0.
    fn append(&mut self, bytes: &[u8]) -> Option<u64>;
}

/// Offset of a table in the [`TableStore`]; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableId(pub u64);

/// Identifies a file of a [`ModuleCache`], or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey(u32);

/// The state of the unwind table of a file or part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableState {
    /// The table exists neither in the store nor as a job.
    Wanted,
    /// A job from [`ModuleCache::job`] is compiling the table.
    Compiling,
    /// The table is in the store.
    At(TableId),
    /// The table can't be compiled, for this reason.
    Absent(Arc<str>),
}

/// Which part of which file is mapped, as the kernel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    offset: u64,
    dev: u64,
    inode: u64,
    deleted: bool,
}

impl Part {
    fn of(mapping: &Mapping) -> Part {
        let &Mapping { offset, dev, inode, deleted, .. } = mapping;
        Part { offset, dev, inode, deleted }
    }
}

/// An executable mapping of a process, and the file behind it.
#[derive(Clone, Debug)]
pub struct LoadedModule {
    /// First address of the mapping.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Difference between an address and the ELF address, wrapping.
    pub bias: u64,
    /// Path as the process sees it.
    pub path: PathBuf,
    /// The mapped part of the file.
    of: Part,
    /// Build id in hex; empty if the file has none.
    pub build_id: Arc<str>,
    /// Offset of its unwind table; `None` until the table is compiled.
    pub table: Option<TableId>,
    /// The file in the cache; `None` if the file could not be read.
    pub file: Option<FileKey>,
    /// Identity of the file; `None` if the file could not be found.
    pub identity: Option<FileId>,
    /// The path by which the collector has opened the file.
    pub reached: PathBuf,
}

/// Whether a mapping is of a file or of the vDSO.
fn is_of_file(mapping: &Mapping) -> bool {
    mapping.inode != 0 || mapping.path == Path::new(VDSO)
}

/// Returns the module in `before` that maps the same part of the same file at the same address;
/// `None` if there is none or its file was not found.
fn same<'m>(before: &'m [LoadedModule], mapping: &Mapping) -> Option<&'m LoadedModule> {
    let at = before.binary_search_by_key(&mapping.start, |module| module.start).ok()?;
    before.get(at).filter(|module| {
        module.file.is_some()
            && (module.end, module.of) == (mapping.end, Part::of(mapping))
            && module.path == mapping.path
    })
}

impl LoadedModule {
    /// Returns what the symbolizer needs to open the file again.
    pub fn module_file(&self) -> ModuleFile {
        ModuleFile {
            path: self.path.clone(),
            build_id: self.build_id.to_string(),
            reached: Some(self.reached.clone()),
            identity: self.identity,
        }
    }
}

/// A file in the cache, or a part of a file that is compiled in parts.
#[derive(Debug)]
struct CachedFile {
    identity: FileId,
    build_id: Arc<str>,
    /// Executable load segments.
    code: Vec<Segment>,
    /// Bytes of frame information.
    frame_bytes: u64,
    /// Whether a stack needs the table.
    asked: bool,
    /// The part of the file that this entry is for; `None` if it is for the whole file.
    part: Option<ModulePart>,
    /// The entries for the parts of the file, in order of address, each with its first ELF address.
    /// Empty for a part and for a file that is compiled as a whole.
    parts: Vec<(u64, FileKey)>,
    state: TableState,
    /// The key under which the file's tables are stored on disk; `None` if they aren't stored.
    kept_as: Option<Arc<LibraryKey>>,
    /// The open file, until its table is compiled.
    elf: Option<Elf>,
    path: PathBuf,
}

impl CachedFile {
    /// Returns the range of the file that the entry's table is for.
    fn span(&self) -> RowSpan {
        self.part.as_ref().map_or(RowSpan::WHOLE, ModulePart::span)
    }
}

/// Tables that were compiled in this run and wait to be stored on disk.
#[derive(Debug, Default)]
struct Fresh {
    tables: HashMap<Arc<LibraryKey>, Vec<SpanRows>>,
    bytes: usize,
}

impl Fresh {
    fn add(&mut self, key: &Arc<LibraryKey>, span: RowSpan, bytes: Vec<u8>) {
        if self.bytes + bytes.len() <= MAX_FRESH {
            self.bytes += bytes.len();
            self.tables.entry(Arc::clone(key)).or_default().push((span, bytes));
        }
    }
}

/// Compiled tables, with the disk cache in which they are to be stored.
#[derive(Debug)]
pub struct FreshRows {
    kept: Option<Arc<DiskCache>>,
    tables: HashMap<Arc<LibraryKey>, Vec<SpanRows>>,
}

impl FreshRows {
    /// Writes the tables to the disk cache.
    pub fn write(self) {
        let Some(kept) = self.kept else { return };
        self.tables.iter().for_each(|(key, tables)| CachedRows::add(&kept, key, tables));
    }
}

/// Returns the state of a table, from the result of [`TableStore::append`].
fn stored(offset: Option<u64>) -> TableState {
    match offset {
        Some(offset) if offset != 0 => TableState::At(TableId(offset)),
        _ => TableState::Absent(Arc::from("no room for unwind tables is left")),
    }
}

/// The compilation of one table, which any thread can run.
#[derive(Debug)]
pub struct CompileJob {
    file: FileKey,
    elf: Elf,
    part: Option<ModulePart>,
}

/// The result of a [`CompileJob`].
#[derive(Debug)]
pub struct Compiled {
    file: FileKey,
    bytes: Result<Vec<u8>, Arc<str>>,
}

impl CompileJob {
    /// Returns the file or part whose table the job compiles.
    pub fn file(&self) -> FileKey {
        self.file
    }

    /// Compiles the table, which takes a second per 25 million rows.
    pub fn run(self) -> Compiled {
        let table = match &self.part {
            Some(part) => unwind_table::compile_part(&self.elf, part),
            None => unwind_table::compile_elf(&self.elf),
        };
        let bytes = match table {
            Ok(table) => match table.empty {
                Some(why) => Err(Arc::from(why)),
                None => {
                    let mut bytes = Vec::new();
                    unwind_table::encode(&table, &mut bytes);
                    Ok(bytes)
                }
            },
            Err(e) => Err(Arc::from(e.to_string())),
        };
        Compiled { file: self.file, bytes }
    }
}

/// Jobs and their results must be able to move between threads.
const _: () = {
    const fn is_send<T: Send + 'static>() {}
    is_send::<CompileJob>();
    is_send::<Compiled>();
};

/// The files that the processes of the run execute, by device and inode.
#[derive(Debug, Default)]
pub struct ModuleCache {
    /// The cache on disk for later runs, if the user has one.
    kept: Option<Arc<DiskCache>>,
    /// Whether compiled tables are stored for later runs. They aren't as long as all processes
    /// compute unwind rows themselves. Compiling a part for such a process takes 0.4 ms, but
    /// reading the stored tables of PyTorch takes 17 ms, in which all processes that ask have to
    /// wait.
    keeps_rows: bool,
    /// Files whose tables from earlier runs were not read yet.
    unread: Vec<FileKey>,
    fresh: Fresh,
    entries: Vec<CachedFile>,
    by_identity: HashMap<FileId, FileKey>,
    vdso: Option<FileKey>,
    /// Number of cached files that are open.
    open: usize,
    /// Whether the kernel has refused `/proc/PID/map_files`, which only privileged processes may
    /// read. It is then not tried again.
    map_files_refused: bool,
}

impl ModuleCache {
    /// Returns an empty cache.
    pub fn new() -> ModuleCache {
        ModuleCache::default()
    }

    /// Returns an empty cache that will read the tables of earlier runs from `kept`.
    pub fn with_kept(kept: Option<Arc<DiskCache>>) -> ModuleCache {
        ModuleCache { kept, ..ModuleCache::default() }
    }

    /// Returns the modules of a process in order of address: its executable mappings that are of a
    /// file or of the vDSO.
    pub fn loaded(&mut self, pid: u32) -> io::Result<Vec<LoadedModule>> {
        self.loaded_since(pid, &[])
    }

    /// Returns the modules of a process in order of address. `before` is an earlier result for the
    /// same image. If a mapping has not changed, neither has its file, so the file isn't searched
    /// for again.
    pub fn loaded_since(
        &mut self,
        pid: u32,
        before: &[LoadedModule],
    ) -> io::Result<Vec<LoadedModule>> {
        let mut maps = read_code_maps(pid)?;
        maps.retain(is_of_file);
        let one = |mapping: Mapping| match same(before, &mapping) {
            Some(known) => self.known(known),
            None => self.identify(pid, mapping),
        };
        Ok(maps.into_iter().map(one).collect())
    }

    /// Returns a module that was found before, with the present table of its file.
    fn known(&self, module: &LoadedModule) -> LoadedModule {
        let state = module.file.map(|file| self.state(file));
        let table = match state {
            Some(TableState::At(table)) => Some(*table),
            _ => module.table,
        };
        LoadedModule { table, ..module.clone() }
    }

    /// Returns the modules for mappings that were read before.
    pub fn identified(&mut self, pid: u32, mut maps: Vec<Mapping>) -> Vec<LoadedModule> {
        maps.retain(is_of_file);
        maps.into_iter().map(|m| self.identify(pid, m)).collect()
    }

    /// Finds the file behind one executable mapping, and returns the module.
    pub fn identify(&mut self, pid: u32, mapping: Mapping) -> LoadedModule {
        let found = if mapping.inode == 0 && mapping.path == Path::new(VDSO) {
            self.vdso(&mapping).map(|file| (file, PathBuf::from(VDSO)))
        } else {
            self.find(pid, &mapping)
        };
        let of = Part::of(&mapping);
        let mut module = LoadedModule {
            of,
            start: mapping.start,
            end: mapping.end,
            bias: mapping.start.wrapping_sub(mapping.offset),
            path: mapping.path,
            build_id: Arc::from(""),
            table: None,
            file: None,
            identity: None,
            reached: PathBuf::new(),
        };
        let Some((file, reached)) = found else {
            return module;
        };
        let entry = &self.entries[file.0 as usize];
        module.reached = reached;
        module.identity = Some(entry.identity);
        // This part of the file is in none of its load segments, so it has no ELF addresses.
        let Some(address) = address_of(&entry.code, mapping.offset) else {
            return module;
        };
        module.bias = mapping.start.wrapping_sub(address);
        module.build_id = Arc::clone(&entry.build_id);
        module.file = Some(file);
        if let TableState::At(table) = entry.state {
            module.table = Some(table);
        }
        module
    }

    /// Returns the state of a file's table.
    pub fn state(&self, file: FileKey) -> &TableState {
        &self.entries[file.0 as usize].state
    }

    /// Returns the bytes of frame information of a file or part. Compiling 1,000 bytes takes about
    /// 6 µs.
    pub fn module_cost(&self, file: FileKey) -> u64 {
        self.entries[file.0 as usize].frame_bytes
    }

    /// Notes that a process's stack needs the table of a file or part.
    pub fn ask(&mut self, file: FileKey) {
        self.entries[file.0 as usize].asked = true;
    }

    /// Asks for the tables of these modules, but not for those of large files. The tables that are
    /// asked for have at most `most` bytes of frame information in all.
    pub fn ask_small(&mut self, modules: &[LoadedModule], most: u64) {
        let mut bytes = 0;
        for file in modules.iter().filter_map(|module| module.file) {
            let entry = &mut self.entries[file.0 as usize];
            if entry.frame_bytes < DEFERRED_FROM && bytes + entry.frame_bytes <= most {
                bytes += entry.frame_bytes;
                entry.asked = true;
            }
        }
    }

    /// Whether a table must not be compiled yet, because no stack needs it. `finds_rows` says that
    /// the process computes unwind rows itself, without a table.
    pub fn is_deferred(&self, file: FileKey, finds_rows: bool) -> bool {
        let entry = &self.entries[file.0 as usize];
        let is_large = entry.part.is_some() || entry.frame_bytes >= DEFERRED_FROM;
        entry.state == TableState::Wanted && (is_large || finds_rows) && !entry.asked
    }

    /// Returns a job that compiles a table, and sets its state to [`TableState::Compiling`].
    /// Returns `None` if the state isn't [`TableState::Wanted`] or if the file can't be opened.
    pub fn job(&mut self, file: FileKey) -> Option<CompileJob> {
        let entry = &mut self.entries[file.0 as usize];
        if entry.state != TableState::Wanted {
            return None;
        }
        let elf = match entry.elf.take() {
            Some(elf) => {
                self.open -= 1;
                Some(elf)
            }
            None => reopen(&entry.path, entry.identity),
        };
        match elf {
            Some(elf) => {
                entry.state = TableState::Compiling;
                Some(CompileJob { file, elf, part: entry.part.clone() })
            }
            None => {
                entry.state = TableState::Absent(Arc::from("the file is gone or has changed"));
                None
            }
        }
    }

    /// Stores a compiled table for all processes that map the file, now and later.
    pub fn publish(&mut self, compiled: Compiled, store: &mut dyn TableStore) -> &TableState {
        let entry = &mut self.entries[compiled.file.0 as usize];
        entry.state = match compiled.bytes {
            Err(why) => TableState::Absent(why),
            Ok(bytes) => {
                let state = stored(store.append(&bytes));
                let keeps = self.keeps_rows && entry.parts.is_empty();
                if let Some(key) = entry.kept_as.as_ref().filter(|_| keeps) {
                    self.fresh.add(key, entry.span(), bytes);
                }
                state
            }
        };
        &entry.state
    }

    /// Appends the tables that earlier runs stored on disk to `store`, for the files that were
    /// found since the last call. From now on, compiled tables are stored for later runs as well,
    /// because some processes wait for tables.
    pub fn load_cached(&mut self, store: &mut dyn TableStore) {
        self.keeps_rows = true;
        for file in std::mem::take(&mut self.unread) {
            let key = &self.entries[file.0 as usize].kept_as;
            let (Some(kept), Some(key)) = (&self.kept, key) else { continue };
            let rows = CachedRows::read(kept, key);
            let parts = &self.entries[file.0 as usize].parts;
            let files: Vec<_> = match parts.is_empty() {
                true => vec![file],
                false => parts.iter().map(|(_, part)| *part).collect(),
            };
            let by_span: HashMap<_, _> =
                files.iter().map(|file| (self.entries[file.0 as usize].span(), *file)).collect();
            for (span, table) in rows.tables() {
                let Some(file) = by_span.get(&span) else { continue };
                let entry = &mut self.entries[file.0 as usize];
                if entry.state == TableState::Wanted {
                    entry.state = stored(store.append(table));
                }
            }
        }
    }

    /// Returns the tables that were compiled since the last call, for any thread to store on disk.
    pub fn take_fresh(&mut self) -> FreshRows {
        let fresh = std::mem::take(&mut self.fresh);
        FreshRows { kept: self.kept.clone(), tables: fresh.tables }
    }

    /// Returns the file behind a mapping, and the path by which it was reached. Adds the file if it
    /// is new.
    fn find(&mut self, pid: u32, mapping: &Mapping) -> Option<(FileKey, PathBuf)> {
        for Candidate { path, trusted, map_files } in
            candidates(pid, mapping, !self.map_files_refused)
        {
            let meta = match std::fs::metadata(&path) {
                Ok(meta) => meta,
                Err(e) => {
                    let refused = e.kind() == io::ErrorKind::PermissionDenied;
                    self.map_files_refused |= map_files && refused;
                    continue;
                }
            };
            if !meta.is_file() || !(trusted || meta.ino() == mapping.inode) {
                continue;
            }
            let identity = FileId::of(&meta);
            if let Some(file) = self.by_identity.get(&identity) {
                return Some((*file, path));
            }
            if let Some(elf) = reopen(&path, identity) {
                return Some((self.add(identity, elf, path.clone()), path));
            }
        }
        None
    }

    fn add(&mut self, identity: FileId, elf: Elf, path: PathBuf) -> FileKey {
        let file = FileKey(self.entries.len() as u32);
        let frame_bytes = unwind_table::frame_bytes(&elf);
        let is_kept = self.kept.is_some() && frame_bytes >= KEPT_FROM;
        let kept_as = is_kept.then(|| LibraryKey::of(&elf)).flatten().map(Arc::new);
        self.unread.extend(kept_as.as_ref().map(|_| file));
        let parts = match frame_bytes {
            DEFERRED_FROM.. => unwind_table::parts(&elf),
            _ => Vec::new(),
        };
        // A file that is compiled in parts is closed, because the job of each part opens it again.
        let keep = self.open < MAX_OPEN && parts.is_empty();
        self.open += usize::from(keep);
        self.entries.push(CachedFile {
            identity,
            build_id: Arc::from(elf.build_id()),
            code: elf.segments().iter().filter(|s| s.is_code()).copied().collect(),
            frame_bytes,
            asked: false,
            part: None,
            parts: Vec::new(),
            state: TableState::Wanted,
            kept_as,
            elf: keep.then_some(elf),
            path,
        });
        self.by_identity.insert(identity, file);
        self.add_parts(file, parts);
        file
    }

    /// Adds the parts of a file. Each part is compiled like a separate file.
    fn add_parts(&mut self, file: FileKey, parts: Vec<ModulePart>) {
        let whole = &self.entries[file.0 as usize];
        let (identity, path) = (whole.identity, whole.path.clone());
        let kept_as = whole.kept_as.clone();
        let frame_bytes = whole.frame_bytes / (parts.len() as u64).max(1);
        for part in parts {
            let key = FileKey(self.entries.len() as u32);
            self.entries[file.0 as usize].parts.push((part.start, key));
            self.entries.push(CachedFile {
                identity,
                build_id: Arc::from(""),
                code: Vec::new(),
                frame_bytes,
                asked: false,
                part: Some(part),
                parts: Vec::new(),
                state: TableState::Wanted,
                kept_as: kept_as.clone(),
                elf: None,
                path: path.clone(),
            });
        }
    }

    /// Returns the parts of a file in order of address, each with its first ELF address; empty for
    /// a file that is compiled as a whole.
    pub fn parts(&self, file: FileKey) -> &[(u64, FileKey)] {
        &self.entries[file.0 as usize].parts
    }

    /// Returns the vDSO. All processes of the host share it, so it is read from this process.
    fn vdso(&mut self, mapping: &Mapping) -> Option<FileKey> {
        let bytes = own_vdso()?;
        if mapping.end - mapping.start != bytes.len() as u64 {
            return None;
        }
        if let Some(file) = self.vdso {
            return Some(file);
        }
        let identity = FileId { dev: 0, inode: 0, mtime_ns: 0, size: bytes.len() as u64 };
        let file = self.add(identity, Elf::from_bytes(bytes).ok()?, PathBuf::from(VDSO));
        self.vdso = Some(file);
        Some(file)
    }
}
