//! Tracks which code is mapped in each sampled process, from the kernel's records of mappings,
//! forks and execs. Samples can then be unwound even if their process has ended.
//!
//! A file is read only when it contains a sample. In a build, most processes map ten files and are
//! sampled once.

use super::cache::{LoadedModule, ModuleCache};
use super::rows::ModuleRows;
use crate::elf::{Elf, FileId, VDSO, own_vdso};
use crate::os::maps::{Mapping, read_code_maps};
use rustc_hash::FxHashMap;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use tprof_wire::unwind::Row;

/// Number of unwind rows that are cached for all processes together. If there are more, all are
/// dropped and looked up again.
const MAX_MEMO: usize = 1 << 17;
/// Number of unwind rows that are cached for one process. If there are more, all are dropped.
const MAX_KNOWN: usize = 1 << 14;

/// An executable mapping.
#[derive(Clone, Debug)]
struct CodeRegion {
    start: u64,
    end: u64,
    mapping: Arc<Mapping>,
    /// Whether the file behind the mapping was read, and the result.
    state: RegionState,
}

#[derive(Clone, Debug)]
enum RegionState {
    /// The code was mapped at this time, and its file was not read yet.
    Unseen(u64),
    Seen {
        module: Arc<(u64, LoadedModule)>,
        /// Index of the file's unwind rows; `None` for code without a file.
        rows: Option<usize>,
    },
}

/// The code of one process.
#[derive(Clone, Debug, Default)]
struct AddressSpace {
    /// The regions, sorted by address and without overlaps. A forked child shares them with its
    /// parent until one of them maps code.
    regions: Arc<Vec<CodeRegion>>,
    /// First addresses of the modules that were reported to the trace.
    reported: HashSet<u64>,
    /// Unwind rows that were looked up since code was last mapped, by address. Stacks contain the
    /// same addresses again and again.
    known: FxHashMap<u64, Row>,
}

/// A module that contains a sample. It must get a row in the trace.
#[derive(Clone, Debug)]
pub struct ModuleLoad {
    /// Pid of its process.
    pub pid: u32,
    /// Time when it was mapped, ns.
    pub time_ns: u64,
    /// The mapped module.
    pub module: LoadedModule,
}

/// The address spaces of all processes.
#[derive(Default)]
pub struct AddressSpaces {
    by_pid: FxHashMap<u32, AddressSpace>,
    cache: ModuleCache,
    rows: Vec<Option<ModuleRows>>,
    by_file: HashMap<FileId, usize>,
    memo: FxHashMap<(usize, u64), Row>,
    /// Modules that contain samples and that the caller has not fetched yet.
    pub loaded: Vec<ModuleLoad>,
}

impl AddressSpaces {
    /// Returns the known processes.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.by_pid.keys().copied()
    }

    /// Whether a process is known.
    pub fn knows(&self, pid: u32) -> bool {
        self.by_pid.contains_key(&pid)
    }

    /// Reads the mappings of a process that ran before it was sampled.
    pub fn read(&mut self, pid: u32, time_ns: u64) {
        let mut space = AddressSpace::default();
        for mapping in read_code_maps(pid).unwrap_or_default() {
            insert(&mut space, mapping, time_ns);
        }
        self.by_pid.insert(pid, space);
    }

    /// Adds those of the mappings that are new, and returns whether any was.
    pub fn refresh(&mut self, pid: u32, mappings: Vec<Mapping>, time_ns: u64) -> bool {
        let space = self.by_pid.entry(pid).or_default();
        let mut any = false;
        for mapping in mappings {
            let at = space.regions.partition_point(|r| r.start < mapping.start);
            let known = space.regions.get(at).is_some_and(|r| {
                (r.start, r.end) == (mapping.start, mapping.end)
                    && (r.mapping.inode, r.mapping.offset) == (mapping.inode, mapping.offset)
            });
            if !known {
                insert(space, mapping, time_ns);
                any = true;
            }
        }
        any
    }

    /// Copies the parent's address space for a forked child.
    pub fn forked(&mut self, pid: u32, parent: u32) {
        let regions = self.by_pid.get(&parent).map(|space| Arc::clone(&space.regions));
        let space =
            AddressSpace { regions: regions.unwrap_or_default(), ..AddressSpace::default() };
        self.by_pid.insert(pid, space);
    }

    /// Clears the address space of a process, because it runs another program now.
    pub fn replaced(&mut self, pid: u32) {
        self.by_pid.insert(pid, AddressSpace::default());
    }

    /// Removes a process that has ended.
    pub fn gone(&mut self, pid: u32) {
        self.by_pid.remove(&pid);
    }

    /// Adds a mapping of code, which replaces what was mapped at its addresses.
    pub fn mapped(&mut self, pid: u32, mapping: Mapping, time_ns: u64) {
        insert(self.by_pid.entry(pid).or_default(), mapping, time_ns);
    }

    /// Returns the unwind row for an address; `None` if no mapping contains the address.
    pub fn row_at(&mut self, pid: u32, pc: u64) -> Option<Row> {
        let space = self.by_pid.get_mut(&pid)?;
        if let Some(row) = space.known.get(&pc) {
            return Some(*row);
        }
        let (address, at) = (pc, space.regions.partition_point(|r| r.start <= pc).checked_sub(1)?);
        if pc >= space.regions[at].end {
            return None;
        }
        let (module, rows) = match &space.regions[at].state {
            RegionState::Seen { module, rows } => (Arc::clone(module), *rows),
            RegionState::Unseen(time_ns) => {
                let (mapping, time_ns) = (Arc::clone(&space.regions[at].mapping), *time_ns);
                let (module, rows) = self.find_file(pid, &mapping);
                let module = Arc::new((time_ns, module));
                let space = self.by_pid.get_mut(&pid)?;
                Arc::make_mut(&mut space.regions)[at].state =
                    RegionState::Seen { module: Arc::clone(&module), rows };
                (module, rows)
            }
        };
        let (time_ns, module) = &*module;
        let space = self.by_pid.get_mut(&pid)?;
        if rows.is_some() && space.reported.insert(module.start) {
            self.loaded.push(ModuleLoad { pid, time_ns: *time_ns, module: module.clone() });
        }
        let bias = module.bias;
        let rows = rows?;
        let pc = pc.wrapping_sub(bias);
        if self.memo.len() > MAX_MEMO {
            self.memo.clear();
        }
        let module = &mut self.rows[rows];
        let row = self.memo.entry((rows, pc)).or_insert_with(|| match module {
            Some(module) => module.row_at(pc),
            None => Row::NONE,
        });
        if space.known.len() >= MAX_KNOWN {
            space.known.clear();
        }
        space.known.insert(address, *row);
        Some(*row)
    }

    /// Returns the path of the file whose code is mapped at an address.
    pub fn file_at(&self, pid: u32, pc: u64) -> Option<&Path> {
        let regions = &self.by_pid.get(&pid)?.regions;
        let after = regions.partition_point(|r| r.start <= pc);
        let region = &regions[after.checked_sub(1)?];
        (pc < region.end).then_some(&*region.mapping.path)
    }

    /// Whether code of a process is mapped at an address. In the middle of an exec, a thread's pc
    /// may be outside all mappings.
    pub fn holds(&self, pid: u32, pc: u64) -> bool {
        self.file_at(pid, pc).is_some()
    }

    /// Returns the mappings of a process's code.
    pub fn mappings(&self, pid: u32) -> Vec<Arc<Mapping>> {
        let regions =
            self.by_pid.get(&pid).map(|space| Arc::clone(&space.regions)).unwrap_or_default();
        regions.iter().map(|region| Arc::clone(&region.mapping)).collect()
    }

    /// Returns the number of mappings of code that a process has.
    pub fn count(&self, pid: u32) -> usize {
        self.by_pid.get(&pid).map_or(0, |space| space.regions.len())
    }

    /// Returns the module behind a mapping.
    pub fn identify(&mut self, pid: u32, mapping: &Mapping) -> LoadedModule {
        self.cache.identify(pid, mapping.clone())
    }

    /// Finds the file behind a mapping, reads it if it is new, and returns the index of its unwind
    /// rows.
    fn find_file(&mut self, pid: u32, mapping: &Mapping) -> (LoadedModule, Option<usize>) {
        let vdso = mapping.path == Path::new(VDSO);
        let module = self.cache.identify(pid, mapping.clone());
        let Some(identity) = module.identity.filter(|_| mapping.inode != 0 || vdso) else {
            return (module, None);
        };
        if let Some(rows) = self.by_file.get(&identity) {
            return (module, Some(*rows));
        }
        let elf = match vdso {
            true => own_vdso().and_then(|bytes| Elf::from_bytes(bytes).ok()),
            false => Elf::open(&module.reached).ok(),
        };
        let found = elf.is_some();
        self.rows.push(elf.map(ModuleRows::new));
        let rows = self.rows.len() - 1;
        // This process may have ended before its file was opened. If so, another process with the
        // same file will try again.
        if found {
            self.by_file.insert(identity, rows);
        }
        (module, Some(rows))
    }
}

/// Inserts a mapping, and removes what was mapped at its addresses.
fn insert(space: &mut AddressSpace, mapping: Mapping, time_ns: u64) {
    let (start, end) = (mapping.start, mapping.end);
    space.reported.remove(&start);
    space.known.clear();
    let regions = Arc::make_mut(&mut space.regions);
    // Those parts of an older mapping that are outside the new one stay.
    let mut kept = Vec::new();
    regions.retain(|r| {
        if r.end <= start || end <= r.start {
            return true;
        }
        if r.start < start {
            kept.push(CodeRegion { end: start, ..r.clone() });
        }
        if end < r.end {
            kept.push(CodeRegion { start: end, ..r.clone() });
        }
        false
    });
    let mapping = Arc::new(mapping);
    kept.push(CodeRegion { start, end, mapping, state: RegionState::Unseen(time_ns) });
    regions.extend(kept);
    regions.sort_by_key(|r| r.start);
}
