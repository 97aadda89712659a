//! Symbolizes addresses, and keeps as many modules open as its memory limits permit.

use crate::demangle::{demangle, is_mangled};
use crate::disk_cache::DiskCache;
use crate::dwarf::DebugInfo;
use crate::elf::{Elf, FileId, called_by_stub};
use crate::files::{find_debug_file, find_module};
use crate::frame::ResolvedFrame;
use crate::kernel::{KERNEL, KernelNames};
use crate::module_file::ModuleFile;
use crate::places::KnownAddresses;
use crate::table::SymbolTable;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest number of bytes of debug information that are mapped at the same time. Few of these
/// pages are resident. Triton's compiler has 500 MB. If the limit were near that, every other
/// module in stacks with this compiler would be closed and read again and again.
const MAX_MAPPED: u64 = 2 << 30;
/// Largest estimated memory of the open modules, bytes.
const MAX_HEAP: u64 = 48 << 20;
/// Largest number of modules that are open at the same time.
const MAX_OPEN: usize = 64;
/// Number of resolved addresses that are cached.
const MAX_ANSWERS: usize = 16_384;
/// Number of modules whose ids are remembered.
const MAX_KNOWN: usize = 65_536;
/// What identifies a module. In a build, a thousand processes may run the same file, each under
/// another path. Therefore a file that could be read is identified by its inode, and other modules
/// by their path.
#[derive(PartialEq, Eq, Hash)]
enum ModuleKey {
    File(FileId, String),
    Module(ModuleFile),
}

impl ModuleKey {
    fn of(module: &ModuleFile) -> ModuleKey {
        match module.identity {
            Some(identity) => ModuleKey::File(identity, module.build_id.clone()),
            None => ModuleKey::Module(module.clone()),
        }
    }
}

/// Symbolizes addresses of any number of modules in limited memory.
#[derive(Default)]
pub struct Symbolizer {
    known: HashMap<ModuleKey, u32>,
    open: HashMap<u32, OpenModule>,
    answers: HashMap<(u32, u64), Arc<[ResolvedFrame]>>,
    clock: u64,
    sparing: bool,
    /// The disk cache for later runs, if the user has one. It contains sorted symbols.
    kept: Option<Arc<DiskCache>>,
    /// Whether names from debug information are cached on disk as well.
    keeps_names: bool,
    kernel: KernelNames,
}

/// The symbolizer must be movable to another thread.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Symbolizer>();
};

/// A module that is open for look-ups.
#[derive(Default)]
struct OpenModule {
    used: u64,
    /// A path that did not lead to the file. A path through another process may lead to it later.
    missed: Option<PathBuf>,
    found: Option<(Elf, PathBuf)>,
    /// Frames that earlier runs have found, if the file has debug information of its own.
    places: Option<KnownAddresses>,
    /// The tables of the module. They are opened for the first address that isn't cached.
    sources: Option<Sources>,
}

/// The tables in which addresses are looked up.
#[derive(Default)]
struct Sources {
    debug: Option<DebugInfo>,
    symbols: Option<(Elf, SymbolTable)>,
}

impl Sources {
    fn mapped_bytes(&self) -> u64 {
        self.debug.as_ref().map_or(0, DebugInfo::mapped_bytes)
    }

    fn heap_bytes(&self) -> u64 {
        let symbols = self.symbols.as_ref().map_or(0, |(_, table)| table.heap_bytes());
        self.debug.as_ref().map_or(0, DebugInfo::heap_bytes) + symbols
    }
}

impl Symbolizer {
    /// Returns a symbolizer without open modules.
    pub fn new() -> Symbolizer {
        Symbolizer::default()
    }

    /// Returns a symbolizer that doesn't decompress separate debug files: it takes names from their
    /// symbol tables, and no lines. Distributions ship such files for system libraries, and
    /// decompressing that of libc takes 60 ms and 30 MB. `keeps_names` says whether names are
    /// cached for later runs; `--redact` forbids that.
    pub fn sparing(kept: Option<Arc<DiskCache>>, keeps_names: bool) -> Symbolizer {
        Symbolizer { sparing: true, kept, keeps_names, ..Symbolizer::default() }
    }

    /// Returns what was found for an address before, without reading any file; `None` if it was never
    /// asked for.
    pub fn found_before(&mut self, module: &ModuleFile, pc: u64) -> Option<Arc<[ResolvedFrame]>> {
        let id = self.id_of(module);
        self.answers.get(&(id, pc)).map(Arc::clone)
    }

    /// Symbolizes an ELF address. The address of a caller must be its return address minus one.
    /// Returns the inlined functions, innermost first, and last the function that contains them;
    /// empty if nothing is known.
    pub fn resolve(&mut self, module: &ModuleFile, pc: u64) -> Arc<[ResolvedFrame]> {
        if module.path == Path::new(KERNEL) {
            let function = self.kernel.name_at(pc, self.kept.as_deref());
            return Arc::new([ResolvedFrame { function, ..ResolvedFrame::default() }]);
        }
        let id = self.id_of(module);
        if let Some(answer) = self.answers.get(&(id, pc)) {
            return Arc::clone(answer);
        }
        self.clock += 1;
        let used = self.clock;
        if self.open.get(&id).is_some_and(|open| open.is_new_path(module)) {
            self.open.remove(&id);
        }
        // No known file makes the parsers panic. If one does, the run continues without the names
        // of this module.
        let resolved = catch_unwind(AssertUnwindSafe(|| {
            let kept = self.kept.as_deref();
            let keeps_names = self.keeps_names;
            let open =
                self.open.entry(id).or_insert_with(|| OpenModule::open(module, kept, keeps_names));
            open.used = used;
            (open.resolve(module, pc, self.sparing, kept), open.missed.is_some())
        }));
        let (answer, missed) = resolved.unwrap_or_else(|_| {
            let sources = Some(Sources::default());
            self.open.insert(id, OpenModule { used, sources, ..OpenModule::default() });
            (Vec::new(), false)
        });
        self.close_unused(id);
        let answer = Arc::from(answer);
        if !missed {
            if self.answers.len() >= MAX_ANSWERS {
                self.answers.clear();
            }
            self.answers.insert((id, pc), Arc::clone(&answer));
        }
        answer
    }

    /// Writes the names that were found to the disk cache, for later runs.
    pub fn write_cache(&mut self) {
        let Some(kept) = &self.kept else { return };
        for places in self.open.values_mut().filter_map(|open| open.places.as_mut()) {
            places.keep(kept);
        }
    }

    /// Closes all modules.
    pub fn close(&mut self) {
        self.write_cache();
        let kept = self.kept.take();
        let Symbolizer { sparing, keeps_names, .. } = *self;
        *self = Symbolizer { sparing, kept, keeps_names, ..Symbolizer::default() };
    }

    fn id_of(&mut self, module: &ModuleFile) -> u32 {
        let known = ModuleKey::of(module);
        if let Some(id) = self.known.get(&known) {
            return *id;
        }
        if self.known.len() >= MAX_KNOWN {
            self.close();
        }
        let id = self.known.len() as u32;
        self.known.insert(known, id);
        id
    }

    /// Closes the modules that were not used for longest until the limits are met. Module `id`
    /// stays open.
    fn close_unused(&mut self, id: u32) {
        loop {
            let sources = || self.open.values().filter_map(|open| open.sources.as_ref());
            let places = self.open.values().filter_map(|open| open.places.as_ref());
            let mapped: u64 = sources().map(Sources::mapped_bytes).sum();
            let heap: u64 = sources().map(Sources::heap_bytes).sum();
            let heap = heap + places.map(KnownAddresses::heap_bytes).sum::<u64>();
            if mapped <= MAX_MAPPED && heap <= MAX_HEAP && self.open.len() <= MAX_OPEN {
                return;
            }
            let oldest = self.open.iter().filter(|(other, _)| **other != id);
            let Some(oldest) = oldest.min_by_key(|(_, m)| m.used).map(|(other, _)| *other) else {
                return;
            };
            let closed = self.open.remove(&oldest).and_then(|open| open.places);
            if let (Some(mut places), Some(kept)) = (closed, &self.kept) {
                places.keep(kept);
            }
        }
    }
}

impl OpenModule {
    fn open(module: &ModuleFile, kept: Option<&DiskCache>, keeps_names: bool) -> OpenModule {
        let found = find_module(module);
        let missed = module.reached.clone().filter(|_| found.is_none());
        let own = found.as_ref().map(|(elf, _)| elf).filter(|elf| DebugInfo::is_in(elf));
        let places = own.and_then(|elf| KnownAddresses::of(elf, kept?, keeps_names));
        OpenModule { missed, found, places, ..OpenModule::default() }
    }

    /// Whether the file could not be found before and `module` has another path for it.
    fn is_new_path(&self, module: &ModuleFile) -> bool {
        self.missed.is_some() && self.missed != module.reached
    }

    fn resolve(
        &mut self,
        module: &ModuleFile,
        pc: u64,
        sparing: bool,
        kept: Option<&DiskCache>,
    ) -> Vec<ResolvedFrame> {
        if let Some(frames) = self.places.as_ref().and_then(|places| places.at(pc)) {
            return frames;
        }
        let own = self.found.as_ref().map(|(elf, path)| (elf, path.as_path()));
        let sources = self.sources.get_or_insert_with(|| Sources::open(module, own, sparing, kept));
        let mut frames = sources.resolve(pc);
        if let Some((elf, _)) = self.found.as_ref().filter(|_| frames.is_empty()) {
            frames.extend(stub(elf, pc));
        }
        // Without the file's own debug information, the frames come from elsewhere, so they aren't
        // cached.
        if let (Some(places), Some(_)) = (&mut self.places, &sources.debug) {
            places.learn(pc, &frames);
        }
        frames
    }
}

/// Names the linker's stub at an address, for example `memcmp@plt`.
fn stub(elf: &Elf, pc: u64) -> Option<ResolvedFrame> {
    let function = format!("{}@plt", demangle(&called_by_stub(elf, pc)?));
    Some(ResolvedFrame { function, ..ResolvedFrame::default() })
}

impl Sources {
    fn open(
        module: &ModuleFile,
        own: Option<(&Elf, &Path)>,
        sparing: bool,
        kept: Option<&DiskCache>,
    ) -> Sources {
        let mut open = Sources::default();
        let separate = match own {
            Some((elf, _)) if DebugInfo::is_in(elf) => None,
            _ => find_debug_file(&module.build_id, own),
        };
        open.debug = match (&separate, own) {
            (Some((elf, _)), _) if sparing && DebugInfo::is_compressed_in(elf) => None,
            (Some((elf, path)), _) => DebugInfo::open(elf, path),
            (None, Some((elf, path))) => DebugInfo::open(elf, path),
            (None, None) => None,
        };
        let own = own.map(|(elf, _)| elf);
        let separate = separate.as_ref().map(|(elf, _)| elf);
        open.symbols = [own, separate]
            .into_iter()
            .flatten()
            .find_map(|elf| Some((elf.clone(), SymbolTable::full(elf, kept)?)))
            .or_else(|| Some((own?.clone(), SymbolTable::dynamic(own?, kept)?)));
        open
    }

    fn resolve(&mut self, pc: u64) -> Vec<ResolvedFrame> {
        if self.debug.as_ref().is_some_and(|d| !d.is_whole()) {
            self.debug = None;
        }
        let known = self.debug.as_mut().map(|d| d.frames(pc)).unwrap_or_default();
        let mut frames = known.frames;
        if known.outermost_is_full {
            return frames;
        }
        let Some(name) = self.symbol(pc) else {
            return frames;
        };
        match frames.last_mut() {
            Some(frame) if frame.function.is_empty() || is_mangled(&name) => {
                frame.function = demangle(&name);
            }
            Some(_) => {}
            None => {
                frames.push(ResolvedFrame { function: demangle(&name), ..ResolvedFrame::default() })
            }
        }
        frames
    }

    fn symbol(&self, pc: u64) -> Option<String> {
        let (elf, table) = self.symbols.as_ref()?;
        table.name_at(elf, pc)
    }
}
