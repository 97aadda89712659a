//! Follows the arenas of CPython: the mappings in which the interpreter keeps its small objects.
//!
//! Objects of up to 512 bytes lie in pools, and pools in arenas, which the interpreter maps and
//! unmaps whole. So a leak of small objects is in no site of the heap. An arena counts for the line
//! that made the interpreter map it, which is as if one of so many bytes of small objects were
//! sampled.

use std::collections::HashMap;

use rustc_hash::FxHashMap;
use tprof_facts::frames::{Frame, Frames, Layer};
use tprof_facts::labels::base_name;
use tprof_facts::owner::Code;
use tprof_trace::TraceFile;
use tprof_trace::model::{MapKind, ProcessIndex, StackId, ThreadIndex};

/// Size of an arena: 256 KiB until CPython 3.9, 1 MiB since then.
const ARENA_BYTES: [u64; 2] = [256 << 10, 1 << 20];
/// Beginnings of the names of modules through which a mapping only passes.
const PASSED: [&str; 2] = ["libc.so", "ld-linux"];
/// What the names of functions contain that make mappings for the program and not for objects.
const FOR_PROGRAM: &str = "mmap_object";

/// An arena, from the moment at which it was mapped to that at which it was unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arena {
    from_ns: u64,
    until_ns: u64,
    bytes: u64,
    process: ProcessIndex,
    thread: ThreadIndex,
    stack: StackId,
}

/// Function, file and number of a line of the user's Python code.
pub type PythonLine = (String, String, u32);

/// A line that made the interpreter map arenas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArenaSite {
    /// `None` for stacks without such a line, and for those that import.
    pub line: Option<PythonLine>,
    /// Bytes of the arenas.
    pub bytes: u64,
}

/// The arenas of all processes of a file.
pub struct Arenas<'a> {
    file: &'a TraceFile,
    all: Vec<Arena>,
    /// Number of mappings as large as an arena without a stack, so that nobody knows whose they are.
    pub without_stack: u64,
}

impl<'a> Arenas<'a> {
    /// Reads the arenas of a file.
    ///
    /// # Errors
    ///
    /// Returns the reason if a part of the mappings could not be read.
    pub fn of(file: &'a TraceFile) -> Result<Arenas<'a>, String> {
        let frames = Frames::new(file);
        let mut is_arena: FxHashMap<(ProcessIndex, StackId), bool> = FxHashMap::default();
        let mut live: FxHashMap<ProcessIndex, Vec<(u64, Arena)>> = FxHashMap::default();
        let mut arenas = Arenas { file, all: Vec::new(), without_stack: 0 };
        let mut events = file.map_events();
        for event in events.by_ref() {
            let (process, stack) = (event.process, event.stack);
            let of_process = live.entry(process).or_default();
            // Memory that is mapped or unmapped is no arena any more.
            let end = event.address.saturating_add(event.length);
            of_process.retain(|(address, arena)| {
                let stays = address.saturating_add(arena.bytes) <= event.address || *address >= end;
                if !stays {
                    arenas.all.push(Arena { until_ns: event.time_ns, ..*arena });
                }
                stays
            });
            if event.kind != MapKind::Map || !ARENA_BYTES.contains(&event.length) {
                continue;
            }
            if stack == 0 {
                arenas.without_stack += 1;
                continue;
            }
            let of_interpreter = || is_of_interpreter(frames.of_stack(process, stack).iter().rev());
            if *is_arena.entry((process, stack)).or_insert_with(of_interpreter) {
                let until_ns = file.process_end(process).map_or(u64::MAX, |(end_ns, _)| end_ns);
                let (from_ns, bytes) = (event.time_ns, event.length);
                let thread = event.thread;
                let arena = Arena { from_ns, until_ns, bytes, process, thread, stack };
                of_process.push((event.address, arena));
            }
        }
        if !events.problems().is_empty() {
            return Err("a part of the mappings could not be read".to_owned());
        }
        arenas.all.extend(live.into_values().flatten().map(|(_, arena)| arena));
        Ok(arenas)
    }

    /// Returns the bytes of all arenas at each of these times, which are in order.
    pub fn levels(&self, times: &[u64]) -> Vec<u64> {
        let mut levels = vec![0; times.len()];
        for arena in &self.all {
            let from = times.partition_point(|time| *time < arena.from_ns);
            let until = times.partition_point(|time| *time < arena.until_ns);
            levels[from..until.max(from)].iter_mut().for_each(|level| *level += arena.bytes);
        }
        levels
    }

    /// Returns the lines that mapped the arenas that came after `from_ns` and are there at `to_ns`,
    /// most bytes first.
    pub fn came(&self, from_ns: u64, to_ns: u64) -> Vec<ArenaSite> {
        let frames = Frames::new(self.file);
        let mut lines: FxHashMap<(ProcessIndex, StackId), Option<PythonLine>> =
            FxHashMap::default();
        let mut sites: HashMap<Option<PythonLine>, u64> = HashMap::new();
        for arena in self.that_came(from_ns, to_ns) {
            let line = lines
                .entry((arena.process, arena.stack))
                .or_insert_with(|| own_line(&frames.of_stack(arena.process, arena.stack)));
            *sites.entry(line.clone()).or_default() += arena.bytes;
        }
        let mut sites: Vec<ArenaSite> =
            sites.into_iter().map(|(line, bytes)| ArenaSite { line, bytes }).collect();
        sites.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.line.cmp(&b.line)));
        sites
    }

    /// Returns when the arenas of [`Self::came`] were mapped, and by which thread.
    pub fn moments(&self, from_ns: u64, to_ns: u64) -> Vec<(ThreadIndex, u64)> {
        self.that_came(from_ns, to_ns).map(|arena| (arena.thread, arena.from_ns)).collect()
    }

    fn that_came(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Arena> {
        let is_there = move |arena: &&Arena| {
            (from_ns + 1..=to_ns).contains(&arena.from_ns) && arena.until_ns > to_ns
        };
        self.all.iter().filter(is_there)
    }
}

fn code<'f>(frame: &'f Frame<'_>) -> Code<'f> {
    Code { layer: frame.layer, file: frame.file, module: base_name(frame.module) }
}

/// Whether a mapping was made by the interpreter for itself, by the frames of its stack, innermost
/// first.
fn is_of_interpreter<'f>(mut frames: impl Iterator<Item = &'f Frame<'f>>) -> bool {
    let passes = |frame: &&Frame<'_>| {
        let module = base_name(frame.module);
        frame.layer == Layer::Native && PASSED.iter().any(|start| module.starts_with(start))
    };
    let first = frames.find(|frame| !passes(frame));
    first.is_some_and(|frame| code(frame).is_interpreter() && !frame.function.contains(FOR_PROGRAM))
}

/// Returns the user's innermost line of Python in these frames, which are outermost first. A line
/// that imports takes memory once, for the code of what it imports, so it isn't returned.
fn own_line(frames: &[Frame<'_>]) -> Option<PythonLine> {
    let python = frames.iter().rev().filter(|frame| frame.layer == Layer::Python);
    let own =
        python.take_while(|frame| !code(frame).is_import()).find(|frame| code(frame).is_own());
    own.map(|frame| (frame.function.clone().into_owned(), frame.file.to_owned(), frame.line))
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::{
        MapEvent, MemoryRecording, NameId, Process, SYNTHETIC_FRAME, Stack, Symbol,
    };

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Makes a file in which a Python program maps and unmaps memory: kind, time, address, length
    /// and stack. Stack 1 is an arena for line 7 of the program, stack 2 one for an import of it,
    /// and stack 3 a mapping of a library.
    fn file(events: &[(MapKind, u64, u64, u64, StackId)]) -> TraceFile {
        let mut made = Fixture::new();
        made.writer.process(&Process {
            process: 0,
            pid: 4711,
            parent: 1,
            rank: Some(0),
            command: NameId(0),
            exe: NameId(0),
            start_ns: 0,
            memory: MemoryRecording::Exact,
        });
        let frames = [
            ("keeps", "/me/leak.py", "[python]", 7),
            ("_find_and_load", "<frozen importlib._bootstrap>", "[python]", 1),
            ("_PyObject_Malloc", "", "/usr/bin/python3.11", 0),
            ("maps", "", "/usr/lib/libmap.so", 0),
            ("mmap", "", "/usr/lib/libc.so.6", 0),
        ];
        for (at, (function, file, module, line)) in (0..).zip(frames) {
            let [function, file, module] = [function, file, module].map(|text| made.name(text));
            let address = SYNTHETIC_FRAME | (16 + at);
            made.writer.symbol(&Symbol {
                process: 0,
                address,
                depth: 0,
                function,
                file,
                line,
                module,
            });
        }
        for (stack, frames) in [(1, &[4, 2, 0][..]), (2, &[4, 2, 1, 0]), (3, &[3, 0])] {
            let frames = frames.iter().map(|at: &u64| SYNTHETIC_FRAME | (16 + at)).collect();
            made.writer.stack(&Stack { process: 0, stack, end: 0, frames });
        }
        for (kind, time_ns, address, length, stack) in events.iter().copied() {
            made.writer.map(MapEvent {
                time_ns,
                process: 0,
                thread: 0,
                kind,
                address,
                length,
                old_length: 0,
                stack,
            });
        }
        made.finish()
    }

    #[test]
    fn an_arena_is_live_until_it_is_unmapped() {
        use MapKind::{Map, Unmap};
        let file = file(&[
            (Map, 10, 16 * MIB, MIB, 1),
            (Map, 20, 32 * MIB, MIB, 1),
            (Unmap, 30, 16 * MIB, MIB, 0),
            (Map, 40, 48 * MIB, MIB / 4, 2),
        ]);
        let arenas = Arenas::of(&file).unwrap();
        assert_eq!(arenas.levels(&[5, 10, 25, 30, 45]), [0, MIB, 2 * MIB, MIB, MIB + MIB / 4]);
        let line = Some(("keeps".to_owned(), "/me/leak.py".to_owned(), 7));
        let sites = [ArenaSite { line, bytes: MIB }, ArenaSite { line: None, bytes: MIB / 4 }];
        assert_eq!(arenas.came(15, 45), sites);
        assert_eq!(arenas.came(25, 35), []);
    }

    #[test]
    fn other_mappings_are_no_arenas() {
        use MapKind::Map;
        let file = file(&[
            (Map, 10, 16 * MIB, 2 * MIB, 1),
            (Map, 20, 32 * MIB, MIB, 3),
            (Map, 30, 48 * MIB, MIB, 0),
        ]);
        let arenas = Arenas::of(&file).unwrap();
        assert_eq!((arenas.levels(&[40]), arenas.without_stack), (vec![0], 1));
    }
}
