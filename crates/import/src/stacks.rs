//! Parses call stacks from text: `a.py(12): f;b.py(3): g`, innermost first.

use crate::losses::LossReason;
use crate::output::Output;
use crate::text;
use rustc_hash::FxHashMap;
use tprof_trace::model::{ProcessIndex, SYNTHETIC_FRAME, Stack, StackId, Symbol};

/// Largest number of frames of a stack, which is the writer's limit.
pub(crate) const MAX_FRAMES: usize = 1 << 16;

/// Stacks and frames of one file. They are interned, because a trace repeats a few of them very
/// often.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    stacks: FxHashMap<(ProcessIndex, Box<[u8]>), StackId>,
    /// Frames by their text and module.
    frames: FxHashMap<(ProcessIndex, Box<str>, Box<str>), u32>,
    last: StackId,
}

impl Stacks {
    /// Returns the stack that a text describes; 0 if it is empty.
    pub fn stack(&mut self, process: ProcessIndex, raw: &[u8], output: &mut Output) -> StackId {
        if raw.is_empty() {
            return 0;
        }
        let key = (process, Box::from(raw));
        if let Some(id) = self.stacks.get(&key) {
            return *id;
        }
        let mut text = String::new();
        if text::unescape(raw, &mut text) {
            output.tally.count_loss(LossReason::BytesMended);
        }
        let mut frames = Vec::new();
        for frame in text.split(';').filter(|frame| !frame.is_empty()) {
            if frames.len() < MAX_FRAMES {
                frames.push(self.frame(process, frame, "", output));
            } else {
                output.tally.count_loss(LossReason::LongStack);
            }
        }
        let id = self.reserve();
        output.writer.stack(&Stack { process, stack: id, end: 0, frames });
        self.stacks.insert(key, id);
        id
    }

    /// Reserves the id of a stack that is written later.
    pub fn reserve(&mut self) -> StackId {
        self.last += 1;
        self.last
    }

    /// Returns the made-up address of a frame. Writes its symbol when the frame is new.
    pub fn frame(
        &mut self,
        process: ProcessIndex,
        frame: &str,
        module: &str,
        output: &mut Output,
    ) -> u64 {
        let key = (process, Box::from(frame), Box::from(module));
        let next = self.frames.len() as u32;
        let id = *self.frames.entry(key).or_insert(next);
        let address = SYNTHETIC_FRAME | u64::from(id);
        if id == next {
            let (file, line, function) = parts(frame);
            let function = output.plain_name(function);
            let file = output.plain_name(file);
            let module = output.plain_name(module);
            output.writer.symbol(&Symbol {
                process,
                address,
                depth: 0,
                function,
                file,
                line,
                module,
            });
        }
        address
    }
}

/// Splits `file.py(12): function` into file, line and function. A text in another form is a
/// function's name.
fn parts(frame: &str) -> (&str, u32, &str) {
    let whole = ("", 0, frame);
    let Some((place, function)) = frame.split_once("): ") else { return whole };
    let Some((file, line)) = place.rsplit_once('(') else { return whole };
    match line.parse() {
        Ok(line) if !function.is_empty() => (file, line, function),
        _ => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn frames_are_split_into_file_line_and_function() {
        assert_eq!(parts("a/b.py(12): f"), ("a/b.py", 12, "f"));
        assert_eq!(parts("<frozen x>(7): <module>"), ("<frozen x>", 7, "<module>"));
        for whole in ["aten::add", "f(x): y", "(): ", "a.py(99999999999): f"] {
            assert_eq!(parts(whole), ("", 0, whole));
        }
    }
}
