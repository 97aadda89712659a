//! Interns the stacks of a snapshot, which are lists of frames that many entries share.

use rustc_hash::FxHashMap;
use tprof_trace::model::{NameId, SYNTHETIC_FRAME, Stack, StackId, Symbol};

use crate::losses::LossReason;
use crate::output::Output;
use crate::pickle::{Arena, Value};
use crate::threads::MAIN;

/// Largest number of frames of a stack, which is the writer's limit.
const MAX_FRAMES: usize = 1 << 16;

/// Stacks and frames that are already written, by their objects in the pickle and by their content.
#[derive(Debug, Default)]
pub(super) struct SnapshotStacks {
    by_list: FxHashMap<u32, StackId>,
    by_frames: FxHashMap<Box<[u32]>, StackId>,
    /// For each dictionary of the pickle, the index of its frame plus one; 0 if it has no frame
    /// yet.
    by_dict: Vec<u32>,
    by_content: FxHashMap<(NameId, NameId, u32), u32>,
    frames: Vec<u32>,
}

impl SnapshotStacks {
    /// Returns the stack of a list of frames, innermost first; 0 if it is empty, or not a list.
    pub fn stack(&mut self, arena: &Arena<'_>, list: Value, output: &mut Output) -> StackId {
        let (Value::List(at) | Value::Tuple(at)) = list else { return 0 };
        if let Some(id) = self.by_list.get(&at) {
            return *id;
        }
        let mut frames = std::mem::take(&mut self.frames);
        frames.clear();
        let items = arena.items(list).unwrap_or_default();
        if items.len() > MAX_FRAMES {
            output.tally.count_losses(LossReason::LongStack, (items.len() - MAX_FRAMES) as u64);
        }
        for item in items.iter().take(MAX_FRAMES) {
            frames.push(self.frame(arena, *item, output));
        }
        let id = self.define(&frames, output);
        self.frames = frames;
        self.by_list.insert(at, id);
        id
    }

    fn define(&mut self, frames: &[u32], output: &mut Output) -> StackId {
        if frames.is_empty() {
            return 0;
        }
        if let Some(id) = self.by_frames.get(frames) {
            return *id;
        }
        let id = self.by_frames.len() as StackId + 1;
        let addresses = frames.iter().map(|frame| SYNTHETIC_FRAME | u64::from(*frame)).collect();
        output.writer.stack(&Stack { process: MAIN, stack: id, end: 0, frames: addresses });
        self.by_frames.insert(frames.into(), id);
        id
    }

    #[inline]
    fn frame(&mut self, arena: &Arena<'_>, value: Value, output: &mut Output) -> u32 {
        let at = match value {
            Value::Dict(at) => at as usize,
            _ => return self.of_content(arena, value, output),
        };
        if let Some(known) = self.by_dict.get(at).and_then(|frame| frame.checked_sub(1)) {
            return known;
        }
        let frame = self.of_content(arena, value, output);
        if at >= self.by_dict.len() {
            self.by_dict.resize(at + 1, 0);
        }
        self.by_dict[at] = frame + 1;
        frame
    }

    fn of_content(&mut self, arena: &Arena<'_>, value: Value, output: &mut Output) -> u32 {
        let (mut name, mut file, mut line) = (NameId(0), NameId(0), 0);
        let mut text = |value| {
            let text = String::from_utf8_lossy(arena.text(value).unwrap_or_default());
            output.plain_name(&text)
        };
        let mut others = 0;
        for (key, value) in arena.pairs(value).unwrap_or_default() {
            match arena.text(*key) {
                Some(b"name") => name = text(*value),
                Some(b"filename") => file = text(*value),
                Some(b"line") => {
                    line = value.unsigned().and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
                }
                _ => others += 1,
            }
        }
        output.tally.count_losses(LossReason::FrameDetails, others);
        let next = self.by_content.len() as u32;
        let frame = *self.by_content.entry((name, file, line)).or_insert(next);
        if frame == next {
            output.writer.symbol(&Symbol {
                process: MAIN,
                address: SYNTHETIC_FRAME | u64::from(frame),
                depth: 0,
                function: name,
                file,
                line,
                module: NameId(0),
            });
        }
        frame
    }
}
