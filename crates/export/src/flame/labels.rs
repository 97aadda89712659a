//! Makes the frames of one file: its rank, processes and threads, and its stacks with names.

use rustc_hash::FxHashMap;
use tprof_facts::frames::{Frame, Frames, Layer, Resolution};
use tprof_facts::labels::{self, Ids};
use tprof_facts::owner::Code;
use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, StackId, ThreadIndex};

use super::tree::{FrameKind, FrameOwner, FrameTable};
use crate::OpenRank;

/// Converts the ids of a file to named frames of the shared table.
pub(crate) struct Labels<'a> {
    file: &'a TraceFile,
    frames: Frames<'a>,
    rank: u32,
    ids: Ids,
    above: FxHashMap<(ProcessIndex, Option<ThreadIndex>), Vec<u32>>,
    stacks: FxHashMap<(ProcessIndex, StackId), Vec<u32>>,
}

impl<'a> Labels<'a> {
    pub fn new(part: &'a OpenRank<'_>, ids: Ids, table: &mut FrameTable) -> Labels<'a> {
        let file = &part.trace;
        let name = labels::rank(part.file);
        Labels {
            file,
            frames: Frames::new(file),
            rank: table.frame(FrameKind::Rank, &name, ""),
            ids,
            above: FxHashMap::default(),
            stacks: FxHashMap::default(),
        }
    }

    /// Returns the frames for rank, process and thread, with which every path begins.
    pub fn above(
        &mut self,
        process: ProcessIndex,
        thread: Option<ThreadIndex>,
        table: &mut FrameTable,
    ) -> &[u32] {
        let (file, rank, ids) = (self.file, self.rank, self.ids);
        self.above.entry((process, thread)).or_insert_with(|| {
            let process = table.frame(FrameKind::Process, &labels::process(file, process, ids), "");
            let thread = match thread {
                Some(thread) => labels::thread(file, thread, ids),
                None => "(no thread)".to_owned(),
            };
            vec![rank, process, table.frame(FrameKind::Thread, &thread, "")]
        })
    }

    /// Returns the frames of a stack, outermost first, including inlined functions.
    pub fn stack(
        &mut self,
        process: ProcessIndex,
        stack: StackId,
        table: &mut FrameTable,
    ) -> &[u32] {
        let frames = &self.frames;
        self.stacks
            .entry((process, stack))
            .or_insert_with(|| frames_of(frames, process, stack, table))
    }
}

fn frames_of(
    frames: &Frames<'_>,
    process: ProcessIndex,
    stack: StackId,
    table: &mut FrameTable,
) -> Vec<u32> {
    let known = |frame: Frame<'_>| {
        let (kind, place) = match (frame.known, frame.layer) {
            (Resolution::Nothing, _) => (FrameKind::Unknown, ""),
            (Resolution::Place, _) => (FrameKind::Native, ""),
            (Resolution::Function, Layer::Python) => (FrameKind::Python, frame.file),
            (Resolution::Function, _) => (FrameKind::Native, labels::base_name(frame.module)),
        };
        let code =
            Code { layer: frame.layer, file: frame.file, module: labels::base_name(frame.module) };
        let owner = match frame.known {
            Resolution::Function if code.is_import() => FrameOwner::Import,
            Resolution::Function if code.is_interpreter() => FrameOwner::Interpreter,
            Resolution::Function if code.is_own() => FrameOwner::Own,
            _ => FrameOwner::Library,
        };
        table.code(kind, &frame.function, place, owner)
    };
    frames.of_stack(process, stack).into_iter().map(known).collect()
}
