//! Numbers the Python frames that a process has recorded itself, and writes their names.
//!
//! A stack may refer to a frame whose name is still in another thread's ring. Therefore a frame
//! gets its number when it is first mentioned, and its name is written when the name is read.

use super::code::decode;
use super::function::PyFunction;
use std::collections::{HashMap, HashSet};
use tprof_trace::TraceWriter;
use tprof_trace::model::{ProcessIndex, SYNTHETIC_FRAME, Symbol};
use tprof_wire::python::{Chars, FILE_BYTES, NAME_BYTES};

/// The numbers of these frames begin here. Numbers of frames in samples begin at 0.
const FIRST: u64 = 1 << 31;
/// Number of frames that get a number. A target doesn't define more.
const MAX_FRAMES: usize = 1 << 20;

/// The name of a frame, as the process recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentFrame {
    /// The key that stands for the frame in stacks.
    pub key: u64,
    /// The function, file and line.
    pub named: PyFunction,
}

impl SentFrame {
    /// Decodes a record's payload; `None` if the payload is malformed.
    pub fn decode(payload: &[u64]) -> Option<SentFrame> {
        let [key, line, sent, whole, rest @ ..] = payload else { return None };
        let (name, file) = ((sent & 0xffff_ffff) as usize, (sent >> 32) as usize);
        if name > NAME_BYTES || file > FILE_BYTES {
            return None;
        }
        let words = name.div_ceil(8);
        let bytes = |words: &[u64], len: usize| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_ne_bytes()).take(len).collect()
        };
        let text = |chars: u64, words: &[u64], len| {
            decode(Chars::of(chars & 0xff)?, &bytes(words.get(..usize::div_ceil(len, 8))?, len))
        };
        let mut function = text(line >> 32, rest, name)?;
        let mut path = text(line >> 40, rest.get(words..)?, file)?;
        if whole & 0xffff_ffff > name as u64 {
            function.push('…');
        }
        if whole >> 32 > file as u64 {
            path.insert(0, '…');
        }
        Some(SentFrame {
            key: *key,
            named: PyFunction { function, file: path, line: *line as u32 },
        })
    }
}

/// The frames that a target has mentioned or named, and their numbers in the trace.
#[derive(Default)]
pub struct SentNames {
    numbers: HashMap<u64, u64>,
    named: HashMap<PyFunction, u64>,
    nameless: HashSet<u64>,
    next: u64,
}

impl SentNames {
    fn next(&mut self) -> u64 {
        let number = FIRST + self.next;
        self.next += 1;
        SYNTHETIC_FRAME | number
    }

    /// Returns the trace's frame for a key; `None` if there are too many keys.
    pub fn frame(&mut self, key: u64) -> Option<u64> {
        if let Some(frame) = self.numbers.get(&key) {
            return Some(*frame);
        }
        if self.numbers.len() >= MAX_FRAMES {
            return None;
        }
        let frame = self.next();
        self.numbers.insert(key, frame);
        self.nameless.insert(frame);
        Some(frame)
    }

    /// Writes the name of a frame, unless it has one already.
    pub fn define(
        &mut self,
        sent: SentFrame,
        process: ProcessIndex,
        redact: bool,
        writer: &mut TraceWriter,
    ) {
        let SentFrame { key, named } = sent;
        let frame = match self.numbers.get(&key) {
            Some(frame) if !self.nameless.remove(frame) => return,
            Some(frame) => *frame,
            None if self.numbers.len() >= MAX_FRAMES => return,
            // Instructions in the same line of a function have different keys, but are one frame.
            None => match self.named.get(&named) {
                Some(frame) => {
                    self.numbers.insert(key, *frame);
                    return;
                }
                None => {
                    let frame = self.next();
                    self.numbers.insert(key, frame);
                    frame
                }
            },
        };
        write(frame, &named, process, redact, writer);
        self.named.insert(named, frame);
    }

    /// Writes for the frames whose names never arrived that they have no name, and returns their
    /// number.
    pub fn give_up(&mut self, process: ProcessIndex, writer: &mut TraceWriter) -> u64 {
        let unknown = "(a Python function without a name)".to_owned();
        let unknown = PyFunction { function: unknown, file: String::new(), line: 0 };
        let count = self.nameless.len() as u64;
        for frame in self.nameless.drain() {
            write(frame, &unknown, process, false, writer);
        }
        count
    }
}

/// Writes the function, file and line of a frame.
pub fn write(
    frame: u64,
    named: &PyFunction,
    process: ProcessIndex,
    redact: bool,
    writer: &mut TraceWriter,
) {
    let file = match redact {
        true => named.file.rsplit('/').next().unwrap_or_default(),
        false => &named.file,
    };
    let (function, file, module) =
        (writer.name(&named.function), writer.name(file), writer.name("[python]"));
    let (line, depth) = (named.line, 0);
    writer.symbol(&Symbol { process, address: frame, depth, function, file, line, module });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(key: u64, line: u32, name: &str, file: &str) -> Vec<u64> {
        let sent = name.len() as u64 | (file.len() as u64) << 32;
        let mut words = vec![key, u64::from(line), sent, sent];
        for text in [name, file] {
            for part in text.as_bytes().chunks(8) {
                let mut word = [0; 8];
                word[..part.len()].copy_from_slice(part);
                words.push(u64::from_ne_bytes(word));
            }
        }
        words
    }

    #[test]
    fn a_frames_name_is_decoded_and_malformed_payloads_are_rejected() {
        let words = payload(9, 7, "Class.method", "/a/b.py");
        let sent = SentFrame::decode(&words).unwrap();
        let named = PyFunction { function: "Class.method".into(), file: "/a/b.py".into(), line: 7 };
        assert_eq!(sent, SentFrame { key: 9, named });
        assert_eq!(SentFrame::decode(&words[..words.len() - 1]), None);
        assert_eq!(SentFrame::decode(&words[..3]), None);
        let mut cut = words.clone();
        cut[3] += 1 | 1 << 32;
        let sent = SentFrame::decode(&cut).unwrap();
        assert_eq!((&*sent.named.function, &*sent.named.file), ("Class.method…", "…/a/b.py"));
        for (at, value) in [(1, 3 << 32), (2, u64::MAX), (2, 5000)] {
            let mut words = words.clone();
            words[at] = value;
            assert_eq!(SentFrame::decode(&words), None);
        }
    }

    #[test]
    fn a_key_has_one_number_whether_its_name_or_a_stack_is_read_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.tprof");
        let mut writer = TraceWriter::create(&path, &Default::default()).unwrap();
        let mut sent = SentNames::default();
        let frame = |key, line| SentFrame::decode(&payload(key, line, "f", "f.py")).unwrap();
        let first = sent.frame(1).unwrap();
        sent.define(frame(1, 5), 0, false, &mut writer);
        sent.define(frame(2, 5), 0, false, &mut writer);
        sent.define(frame(3, 6), 0, false, &mut writer);
        assert_eq!((sent.frame(1), sent.frame(2)), (Some(first), Some(first)));
        assert!(sent.frame(3).unwrap() != first && first & SYNTHETIC_FRAME != 0);
        assert_eq!(sent.give_up(0, &mut writer), 0);
        sent.frame(4);
        assert_eq!(sent.give_up(0, &mut writer), 1);
        assert_eq!(sent.give_up(0, &mut writer), 0);
    }
}
