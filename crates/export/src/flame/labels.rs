//! Frames of one file: its rank, processes and threads, and its stacks by name.

use rustc_hash::FxHashMap;
use tprof_trace::model::{ProcessIndex, SYNTHETIC_FRAME, StackId, ThreadIndex};
use tprof_trace::{CodeMap, TraceFile, address_of};

use super::tree::{FrameKind, FrameTable};
use crate::Part;
use crate::page::{base_name, process_name, rank_name, thread_name};

/// Names what a file numbers, as frames of the shared table.
pub(crate) struct Labels<'a> {
    file: &'a TraceFile,
    code: CodeMap<'a>,
    rank: u32,
    /// Leaves out process and thread ids, which differ from run to run.
    bare: bool,
    above: FxHashMap<(ProcessIndex, Option<ThreadIndex>), Vec<u32>>,
    stacks: FxHashMap<(ProcessIndex, StackId), Vec<u32>>,
}

impl<'a> Labels<'a> {
    pub fn new(part: &'a Part<'_>, bare: bool, table: &mut FrameTable) -> Labels<'a> {
        let file = &part.trace;
        let name = rank_name(part.file);
        Labels {
            file,
            code: CodeMap::new(file),
            rank: table.frame(FrameKind::Rank, &name, ""),
            bare,
            above: FxHashMap::default(),
            stacks: FxHashMap::default(),
        }
    }

    /// Rank, process and thread: the first three frames of every path.
    pub fn above(
        &mut self,
        process: ProcessIndex,
        thread: Option<ThreadIndex>,
        table: &mut FrameTable,
    ) -> &[u32] {
        let (file, rank, bare) = (self.file, self.rank, self.bare);
        self.above.entry((process, thread)).or_insert_with(|| {
            let process = table.frame(FrameKind::Process, &process_name(file, process, bare), "");
            let thread = match thread {
                Some(thread) => thread_name(file, thread, bare),
                None => "(no thread)".to_owned(),
            };
            vec![rank, process, table.frame(FrameKind::Thread, &thread, "")]
        })
    }

    /// Frames of a stack, outermost first, inlined functions included.
    pub fn stack(
        &mut self,
        process: ProcessIndex,
        stack: StackId,
        table: &mut FrameTable,
    ) -> &[u32] {
        let (file, code) = (self.file, &self.code);
        self.stacks
            .entry((process, stack))
            .or_insert_with(|| frames_of(file, code, process, stack, table))
    }
}

fn frames_of(
    file: &TraceFile,
    code: &CodeMap<'_>,
    process: ProcessIndex,
    stack: StackId,
    table: &mut FrameTable,
) -> Vec<u32> {
    let mut unknown = |name: &str| table.frame(FrameKind::Unknown, name, "");
    let Some(found) = file.stack(process, stack).filter(|found| !found.frames.is_empty()) else {
        return vec![unknown("(no stack)")];
    };
    let mut frames = Vec::with_capacity(found.frames.len());
    if found.end != 0 {
        frames.push(unknown("(cut off)"));
    }
    for &address in found.frames.iter().rev() {
        let mut symbols: Vec<_> = (file.symbols(process, address).iter())
            .filter(|symbol| !file.name(symbol.function).is_empty())
            .collect();
        symbols.sort_by_key(|symbol| std::cmp::Reverse(symbol.depth));
        if symbols.is_empty() {
            let name = code.unnamed(file, process, address);
            frames.push(table.frame(FrameKind::Native, &name, ""));
        }
        for symbol in symbols {
            let source = file.name(symbol.file);
            let python = source.ends_with(".py") || source.starts_with("<frozen");
            let interpreted = address_of(address) & SYNTHETIC_FRAME != 0;
            let (kind, place) = match python || (interpreted && !source.is_empty()) {
                true => (FrameKind::Python, source),
                false => (FrameKind::Native, base_name(file.name(symbol.module))),
            };
            frames.push(table.frame(kind, file.name(symbol.function), place));
        }
    }
    frames
}
