//! Builds call stacks from the frames at a trace's top level (`stackFrames`). Each frame has a
//! name, a category and a parent.

use crate::losses::LossReason;
use crate::output::Output;
use crate::stacks::{MAX_FRAMES, Stacks};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};
use tprof_trace::model::{ProcessIndex, Stack, StackId};

/// A frame of `stackFrames`.
#[derive(Debug)]
struct Frame {
    name: Box<str>,
    /// Library or program that contains the function.
    category: Box<str>,
    /// Id of the caller's frame.
    parent: Option<Box<str>>,
}

impl Frame {
    fn of(value: &Value) -> Option<Frame> {
        let text = |key| value.get(key).and_then(Value::as_str).unwrap_or_default().into();
        let parent = value.as_object()?.get("parent").and_then(id_of);
        Some(Frame { name: text("name"), category: text("category"), parent })
    }
}

/// All frames of a file, and the stacks that events refer to by a frame's id.
#[derive(Debug, Default)]
pub(crate) struct StackFrames {
    frames: FxHashMap<Box<str>, Frame>,
    wanted: FxHashMap<(ProcessIndex, Box<str>), StackId>,
}

impl StackFrames {
    /// Reads the top-level member `stackFrames`. An invalid frame is left out here; a stack that
    /// needs it is counted as a loss.
    pub fn take(&mut self, json: &[u8], output: &mut Output) {
        let Ok(members) = serde_json::from_slice::<Map<String, Value>>(json) else {
            output.tally.count_loss(LossReason::FactTooLong);
            return;
        };
        let frames = members.into_iter();
        let frames = frames.filter_map(|(id, frame)| Some((id.into(), Frame::of(&frame)?)));
        self.frames.extend(frames);
    }

    /// Returns the id of the stack whose innermost frame has this id; 0 if the id is empty. The
    /// frames themselves may come later in the file.
    pub fn stack(
        &mut self,
        process: ProcessIndex,
        innermost: &[u8],
        stacks: &mut Stacks,
    ) -> StackId {
        if innermost.is_empty() {
            return 0;
        }
        let id = String::from_utf8_lossy(innermost).into();
        *self.wanted.entry((process, id)).or_insert_with(|| stacks.reserve())
    }

    /// Writes the stacks that events refer to.
    pub fn write(&self, stacks: &mut Stacks, output: &mut Output) {
        let mut wanted: Vec<_> = self.wanted.iter().collect();
        wanted.sort_unstable_by_key(|(_, stack)| **stack);
        for ((process, innermost), stack) in wanted {
            let mut frames = Vec::new();
            let mut next = Some(innermost.clone());
            while let Some(id) = next.take() {
                let Some(frame) = self.frames.get(&id) else {
                    output.tally.count_loss(LossReason::StackMissing);
                    break;
                };
                // The walk to the outermost frame visited as many frames as the file has, or as the
                // limit allows. So either a frame is its own caller, or the stack is too long.
                if frames.len() == MAX_FRAMES.min(self.frames.len()) {
                    output.tally.count_loss(LossReason::LongStack);
                    break;
                }
                frames.push(stacks.frame(*process, &frame.name, &frame.category, output));
                next = frame.parent.clone();
            }
            output.writer.stack(&Stack { process: *process, stack: *stack, end: 0, frames });
        }
    }
}

/// Converts a value to a frame's id. Ids are texts as keys of `stackFrames`, but events may write
/// them as numbers.
fn id_of(value: &Value) -> Option<Box<str>> {
    match value {
        Value::String(text) => Some(text.as_str().into()),
        Value::Number(number) => Some(number.to_string().into()),
        _ => None,
    }
}
