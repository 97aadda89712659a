//! Finds the code that was mapped at a frame's address, and adds function names that were missing
//! when the file was written.
//!
//! The collector writes symbols while the job runs. If it was killed first, the file has no
//! symbols, but its modules still name the files of code. A caller with a symbolizer passes it to
//! [`TraceFile::name_missing`] as a [`SymbolSource`], which then searches those files.

use crate::model::{Module, NameId, ProcessIndex, Symbol};
use crate::reader::TraceFile;
use std::collections::{HashMap, HashSet};

/// The bits of a frame from this one on are its generation: how many times other code had been
/// mapped at its address before.
const ADDRESS_SHIFT: u32 = 57;

/// Returns a frame's address without its generation.
pub fn address_of(frame: u64) -> u64 {
    frame & ((1 << ADDRESS_SHIFT) - 1)
}

/// Returns a frame's generation: how many times other code had been mapped at its address before.
fn generation_of(frame: u64) -> u64 {
    frame >> ADDRESS_SHIFT
}

/// The executable mappings of a file, each with the generation of frames in it.
#[derive(Debug)]
pub struct CodeMap<'a> {
    processes: HashMap<ProcessIndex, Vec<(u64, &'a Module)>>,
}

impl<'a> CodeMap<'a> {
    /// Reads the mappings of a file.
    pub fn new(file: &'a TraceFile) -> CodeMap<'a> {
        CodeMap::of(file.modules())
    }

    fn of(modules: &'a [Module]) -> CodeMap<'a> {
        let mut seen: HashMap<ProcessIndex, Seen> = HashMap::new();
        for module in modules {
            seen.entry(module.process).or_default().add(module);
        }
        let processes = seen.into_iter().map(|(process, seen)| (process, seen.all)).collect();
        CodeMap { processes }
    }

    /// Returns the mapping that contains a frame's call. The frame is the call's return address, so
    /// the call lies just before it.
    pub fn module(&self, process: ProcessIndex, frame: u64) -> Option<&'a Module> {
        let (pc, generation) = (address_of(frame).wrapping_sub(1), generation_of(frame));
        let all = self.processes.get(&process)?;
        let holds = |(of, module): &&(u64, &Module)| {
            *of == generation && (module.start..module.end).contains(&pc)
        };
        Some(all.iter().rev().find(holds)?.1)
    }

    /// Names a frame whose function isn't known: `libfoo.so+0x1234`, or its address.
    pub fn unnamed(&self, file: &TraceFile, process: ProcessIndex, frame: u64) -> String {
        let address = address_of(frame);
        match self.module(process, frame) {
            Some(module) => {
                let path = file.name(module.path);
                let base = path.rsplit('/').next().unwrap_or(path);
                format!("{base}+{:#x}", address.wrapping_sub(module.bias))
            }
            None => format!("{address:#x}"),
        }
    }
}

/// The mappings of a process, in the order in which the recorder saw them.
#[derive(Default)]
struct Seen<'a> {
    all: Vec<(u64, &'a Module)>,
    now: Vec<(u64, u64)>,
    reused: Vec<(u64, u64, u64)>,
}

impl<'a> Seen<'a> {
    /// Adds a mapping. Generations are counted as the recorder counts them: they increase by one
    /// where a mapping replaces another.
    fn add(&mut self, module: &'a Module) {
        let (start, end) = (module.start, module.end);
        let before = self.now.len();
        self.now.retain(|(from, to)| *to <= start || end <= *from);
        let overlaps = |(from, to, _): &&(u64, u64, u64)| *from < end && start < *to;
        let mut generation = self.reused.iter().filter(overlaps).map(|r| r.2).max().unwrap_or(0);
        if self.now.len() < before {
            generation = (generation + 1) & 0x7f;
            self.reused.retain(|r| !overlaps(&r));
            self.reused.push((start, end, generation));
        }
        self.now.push((start, end));
        self.all.push((generation, module));
    }
}

/// An address in a file of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePlace<'a> {
    /// Path of the file, as the process saw it.
    pub path: &'a str,
    /// Build id in hex; empty if the file had none.
    pub build_id: &'a str,
    /// ELF address of the call within the file.
    pub pc: u64,
    /// Wall-clock time when recording began, nanoseconds since 1970; 0 if it isn't known.
    pub recorded_unix_ns: u64,
}

/// A function, with its place in the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Name of the function.
    pub name: String,
    /// Source file; empty if it isn't known.
    pub file: String,
    /// Source line; 0 if it isn't known.
    pub line: u32,
}

/// Looks up functions in files of code.
pub trait SymbolSource: Sync {
    /// Returns the functions at a place: inlined functions, innermost first, then the function that
    /// contains them. Empty if nothing is known.
    fn functions(&self, place: &CodePlace<'_>) -> Vec<Function>;
}

impl TraceFile {
    /// Adds symbols for addresses that the recorder didn't symbolize. Returns how many addresses
    /// were named.
    pub fn name_missing(&mut self, source: &dyn SymbolSource) -> usize {
        let mut wanted: Vec<(NameId, NameId, u64, ProcessIndex, u64)> = Vec::new();
        let code = CodeMap::new(self);
        let mut looked_up = HashSet::new();
        for stack in self.stacks() {
            for &frame in &stack.frames {
                if !looked_up.insert((stack.process, frame))
                    || !self.symbols(stack.process, frame).is_empty()
                {
                    continue;
                }
                if let Some(module) = code.module(stack.process, frame) {
                    let pc = address_of(frame).wrapping_sub(1).wrapping_sub(module.bias);
                    wanted.push((module.path, module.build_id, pc, stack.process, frame));
                }
            }
        }
        // Sort by file and address, so that the source opens each file once and reads each of its
        // parts once.
        wanted.sort_unstable_by_key(|w| (w.0.0, w.1.0, w.2));
        let mut found = Vec::new();
        let mut last: Option<(NameId, NameId, u64, Vec<Function>)> = None;
        for (path, build_id, pc, process, address) in wanted {
            let same = last.as_ref().is_some_and(|l| (l.0, l.1, l.2) == (path, build_id, pc));
            if !same {
                let place = CodePlace {
                    path: self.name(path),
                    build_id: self.name(build_id),
                    pc,
                    recorded_unix_ns: self.header().start_unix_ns,
                };
                last = Some((path, build_id, pc, source.functions(&place)));
            }
            let functions = last.as_ref().map_or(&[][..], |l| l.3.as_slice());
            if !functions.is_empty() {
                found.push((process, address, path, functions.to_vec()));
            }
        }
        let count = found.len();
        self.add_symbols(found);
        count
    }

    fn add_symbols(&mut self, found: Vec<(ProcessIndex, u64, NameId, Vec<Function>)>) {
        let tables = self.tables_mut();
        let mut ids: HashMap<String, NameId> = HashMap::new();
        let mut free = tables.names.keys().max().map_or(1, |id| id.saturating_add(1));
        let names = &mut tables.names;
        let mut intern = |text: String| {
            if text.is_empty() {
                return NameId(0);
            }
            *ids.entry(text).or_insert_with_key(|text| {
                let id = NameId(free);
                names.insert(free, text.as_str().into());
                free = free.saturating_add(1);
                id
            })
        };
        for (process, address, module, functions) in found {
            for (depth, function) in functions.into_iter().enumerate() {
                let row = Symbol {
                    process,
                    address,
                    depth: depth as u16,
                    function: intern(function.name),
                    file: intern(function.file),
                    line: function.line,
                    module,
                };
                tables.symbols.push(row);
            }
        }
        tables.symbols.sort_by_key(|row| (row.process, row.address, row.depth));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(start: u64, end: u64, path: u32) -> Module {
        Module {
            process: 0,
            start,
            end,
            bias: start,
            path: NameId(path),
            build_id: NameId(0),
            time_ns: 0,
        }
    }

    #[test]
    fn a_frame_finds_the_code_that_was_mapped_when_it_was_taken() {
        let modules =
            [module(0x1000, 0x2000, 1), module(0x1800, 0x3000, 2), module(0x1000, 0x2000, 3)];
        let code = CodeMap::of(&modules);
        let path = |frame: u64| code.module(0, frame).map(|module| module.path.0);
        let tagged = |address: u64, generation: u64| address | generation << ADDRESS_SHIFT;
        assert_eq!(path(0x1900), Some(1));
        assert_eq!(path(tagged(0x1900, 1)), Some(2));
        assert_eq!(path(tagged(0x1900, 2)), Some(3));
        assert_eq!(path(tagged(0x1900, 3)), None);
        // A return address may lie one byte past the end of its function.
        assert_eq!((path(0x1000), path(0x2000)), (None, Some(1)));
        assert_eq!(code.module(1, 0x1900), None);
    }
}
