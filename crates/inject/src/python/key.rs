//! Computes the key of a Python frame: a hash of its name, file, lines and instruction.

use super::bytes::{bytes_hash, joined, mix};
use tprof_wire::hash::spread;
use tprof_wire::python::{self, CodeFields, Interpreter, Layout, Memory, RawFrame};

/// Hashes the frames of one walk.
///
/// Nothing is cached from one walk to the next, since Python may free an object and make another
/// one at the same address. A cache would have to compare all parts of a code object with their
/// former values, which touches twice the memory. With 42 different functions, that took 20 ns per
/// frame, and this takes 13 ns.
pub struct Keys<'i> {
    interpreter: &'i Interpreter,
    fields: CodeFields,
    /// The address of the last frame's code with its hash, and the address of the last code's file
    /// with its hash. Many consecutive frames share these.
    code: (u64, u64),
    file: (u64, u64),
}

/// Means no object, since objects are never at odd addresses.
const NONE: (u64, u64) = (1, 0);

impl<'i> Keys<'i> {
    /// Begins a walk; `None` if the interpreter's layout is impossible.
    #[inline(always)]
    pub fn begin(interpreter: &'i Interpreter) -> Option<Keys<'i>> {
        let fields = CodeFields::of(&interpreter.layout)?;
        Some(Keys { interpreter, fields, code: NONE, file: NONE })
    }

    /// The key of a frame: a hash of its content, with bit 0 clear and bit 1 set. Returns 0 for the
    /// interpreter's own code, and `None` for an object that isn't a code object.
    #[inline(always)]
    pub fn of(&mut self, memory: &mut impl Memory, raw: RawFrame) -> Option<u64> {
        if self.code.0 != raw.code {
            self.code = (raw.code, self.code(memory, raw.code)?);
        }
        let code = self.code.1;
        let at = python::offset(&self.interpreter.layout, raw.code, raw.instruction);
        Some(if code == 0 { 0 } else { mix(code, at) & !1 | 2 })
    }

    /// The hash of a code object; 0 if it has no name. Returns `None` if the object isn't a code
    /// object.
    #[inline(always)]
    fn code(&mut self, memory: &mut impl Memory, at: u64) -> Option<u64> {
        let layout = &self.interpreter.layout;
        let head = self.fields.read(memory, at)?;
        if head.kind != self.interpreter.code_type {
            return None;
        }
        if head.name == 0 {
            return Some(0);
        }
        // Names are interned, so Python has nearly always stored a hash of its own in them.
        let name = python::text_hash(memory, layout, head.name);
        let name = name.or_else(|| text_hash(memory, layout, head.name))?;
        if self.file.0 != head.file {
            let file = python::text_hash(memory, layout, head.file);
            self.file = (head.file, file.or_else(|| text_hash(memory, layout, head.file))?);
        }
        let hash = joined(self.file.1, name ^ spread(u64::from(head.first_line)));
        Some(bytes_hash(memory, head.lines, head.lines_bytes, hash)?.max(1))
    }
}

#[inline(always)]
fn text_hash(memory: &mut impl Memory, layout: &Layout, object: u64) -> Option<u64> {
    let text = python::text(memory, layout, object)?;
    bytes_hash(memory, text.at, text.bytes, text.chars as u64)
}

#[cfg(test)]
mod tests {
    use super::super::memory::OwnMemory;
    use super::*;
    use tprof_wire::python::INTERPRETER_WORDS;

    const CODE_TYPE: u64 = 0x7700;

    fn interpreter() -> Interpreter {
        let nothing = Interpreter::of_words(&[0; INTERPRETER_WORDS]);
        let layout = Layout {
            file: 16,
            name: 24,
            first_line: 36,
            lines: 40,
            instructions: 48,
            text: (40, 56),
            ..nothing.layout
        };
        Interpreter { code_type: CODE_TYPE, layout, ..nothing }
    }

    /// An ASCII string for which Python has not computed a hash.
    fn string(text: &[u8; 16]) -> Vec<u64> {
        let word = |at: usize| u64::from_le_bytes(text[at..at + 8].try_into().unwrap());
        vec![1, 0, 13, u64::MAX, (1 | 1 << 3 | 1 << 4) << 2, word(0), word(8)]
    }

    /// A code object and the objects that it refers to.
    struct Code {
        code: Vec<u64>,
        file: Vec<u64>,
        name: Vec<u64>,
        lines: Vec<u64>,
    }

    impl Code {
        fn new() -> Code {
            let (file, name) = (string(b"/home/job/a.py\0\0"), string(b"train_step.run\0\0"));
            let lines = vec![1, 0, 20, u64::MAX, 0x80f2_0c80, 0x8105_1f80, 0x17];
            let [at_file, at_name, at_lines] = [&file, &name, &lines].map(|of| of.as_ptr() as u64);
            let code = vec![1, CODE_TYPE, at_file, at_name, 40 << 32, at_lines];
            Code { code, file, name, lines }
        }

        /// The frame's key at an instruction.
        fn key(&self, instruction: u64) -> Option<u64> {
            let interpreter = interpreter();
            let at = self.code.as_ptr() as u64;
            let raw = RawFrame { at: 8, code: at, instruction: at + 48 + instruction, entry: 0 };
            // SAFETY: the test reads only this code and the objects that it refers to, which
            // outlive `here`.
            let mut here = unsafe { OwnMemory::vouched() };
            Keys::begin(&interpreter).unwrap().of(&mut here, raw)
        }
    }

    #[test]
    fn a_key_depends_on_the_contents_of_the_code_and_not_on_its_address() {
        let code = Code::new();
        let key = code.key(4).unwrap();
        assert_eq!(key & 3, 2, "bit 1 is set and bit 0 is clear");
        // The key doesn't depend on the code's address.
        assert_eq!((Code::new().key(4), code.key(4)), (Some(key), Some(key)));
        assert_ne!(code.key(6), Some(key));
        let changed = |change: &dyn Fn(&mut Code)| {
            let mut other = Code::new();
            change(&mut other);
            other.key(4)
        };
        let others = [
            changed(&|code| code.file[6] ^= 1),
            changed(&|code| code.name[5] ^= 1 << 8),
            changed(&|code| code.name[3] = 7), // Python has its hash
            changed(&|code| code.code[4] = 41 << 32),
            changed(&|code| code.lines[5] ^= 1 << 16),
            changed(&|code| code.lines[2] = 19),
        ];
        for (at, other) in others.iter().enumerate() {
            assert!(other.is_some_and(|other| other != key), "change {at}");
        }
        // Bytes after the last character of a text or the last byte of a line table don't belong to
        // it.
        assert_eq!(changed(&|code| code.file[6] ^= 1 << 60), Some(key));
        assert_eq!(changed(&|code| code.lines[6] ^= 1 << 40), Some(key));
    }

    #[test]
    fn other_objects_have_no_key_and_nameless_code_has_key_zero() {
        let mut code = Code::new();
        code.code[3] = 0;
        assert_eq!(code.key(4), Some(0));
        code.code[1] = CODE_TYPE + 8;
        assert_eq!(code.key(4), None);
        let interpreter = interpreter();
        let nowhere = RawFrame { at: 8, code: 0, instruction: 0, entry: 0 };
        // SAFETY: nothing is read, since `OwnMemory` refuses address 0.
        let mut here = unsafe { OwnMemory::vouched() };
        assert_eq!(Keys::begin(&interpreter).unwrap().of(&mut here, nowhere), None);
        let mut code = Code::new();
        code.code[2] = 0;
        assert_eq!(code.key(4), None, "code without a file");
    }
}
