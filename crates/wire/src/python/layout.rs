//! The offsets of fields in CPython's objects, which differ between versions, and the addresses of
//! an interpreter.

/// How a frame stores the interpreter's current instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// As an offset in the code, in units of this many bytes.
    Offset(u32),
    /// As an address in the code.
    Address,
}

/// The encoding of a code object's line table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// Pairs of bytes (up to 3.9).
    Pairs,
    /// Pairs of bytes with signs and gaps (3.10).
    Ranges,
    /// Locations of variable length (from 3.11).
    Locations,
}

/// Offsets of the fields of CPython's objects that tprof reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// In the runtime: pointer to the first interpreter. Up to 3.11, the pointer to the main
    /// interpreter follows.
    pub interpreters: u64,
    /// In an interpreter: the next interpreter.
    pub next_interpreter: u64,
    /// In an interpreter: its first thread.
    pub threads: u64,
    /// In a thread's state: the next thread.
    pub next_thread: u64,
    /// In a thread's state: its interpreter.
    pub interpreter: u64,
    /// In a thread's state: its `pthread_t`.
    pub pthread: u64,
    /// In a thread's state: its tid, if CPython stores it.
    pub tid: Option<u64>,
    /// In a thread's state: its frame. If there is a second offset, the first one leads to a
    /// structure that contains the frame at the second.
    pub frame: (u64, Option<u64>),
    /// In a frame: the caller's frame.
    pub previous: u64,
    /// In a frame: its code object.
    pub code: u64,
    /// In a frame: its current instruction.
    pub instruction: u64,
    /// How a frame stores the current instruction.
    pub instruction_is: Instruction,
    /// In a frame: its owner, which marks the interpreter's own frames from 3.12 on.
    pub owner: Option<u64>,
    /// In a frame: whether a call of the evaluation loop began with this frame (3.11).
    pub is_entry: Option<u64>,
    /// In a code object: its file.
    pub file: u64,
    /// In a code object: its name, qualified if it has a qualified name.
    pub name: u64,
    /// In a code object: its first line.
    pub first_line: u64,
    /// In a code object: its line table.
    pub lines: u64,
    /// The encoding of the line table.
    pub lines_are: Lines,
    /// In a code object: its first instruction, if frames store addresses.
    pub instructions: u64,
    /// In a string: the offset of the characters of an ASCII string, and of any other string.
    pub text: (u64, u64),
    /// Offsets for threads that run their own copies of a function's instructions (from 3.14 on,
    /// without the GIL): in a frame the copy's number, and in a code object the pointer to the list
    /// of copies.
    pub copies: Option<(u64, u64)>,
}

impl Layout {
    /// Bytes of each object's header, whose last word is the object's type: 32 in builds without
    /// the GIL, and 16 in others. The builds are told apart by the characters of ASCII strings,
    /// which are at a higher offset without the GIL.
    pub fn head(&self) -> u64 {
        if self.text.0 > 48 { 32 } else { 16 }
    }
}

/// What a target must know of an interpreter to read its own threads' frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// Address of `_PyRuntime`.
    pub runtime: u64,
    /// Address of `PyGILState_GetThisThreadState`, which reads a thread-local variable.
    pub thread_of: u64,
    /// Address of `_PyThreadState_UncheckedGet` or its successor. Up to 3.11 it reads a variable of
    /// the runtime: the thread state that holds the GIL. From 3.12 on it reads a thread-local
    /// variable: the state with which this thread may run Python now.
    pub current: u64,
    /// Address of `PyCode_Type`.
    pub code_type: u64,
    /// Whether `current` returns the holder of one GIL for all threads (up to 3.11).
    pub one_lock: bool,
    /// First address of the interpreter's code, and one past its last. The stack of a thread that
    /// runs Python has return addresses in this range.
    pub text: (u64, u64),
    /// Offsets in CPython's objects.
    pub layout: Layout,
}

/// Number of words of a packed [`Interpreter`].
pub const INTERPRETER_WORDS: usize = 32;

/// Stands for an offset that doesn't exist.
const NONE: u64 = u64::MAX;

impl Interpreter {
    /// Packs it into words.
    pub fn words(&self) -> [u64; INTERPRETER_WORDS] {
        let l = &self.layout;
        let or_none = |offset: Option<u64>| offset.unwrap_or(NONE);
        [
            self.runtime,
            self.thread_of,
            self.current,
            self.code_type,
            u64::from(self.one_lock),
            l.interpreters,
            l.next_interpreter,
            l.threads,
            l.next_thread,
            l.interpreter,
            l.pthread,
            or_none(l.tid),
            l.frame.0,
            or_none(l.frame.1),
            l.previous,
            l.code,
            l.instruction,
            match l.instruction_is {
                Instruction::Offset(unit) => u64::from(unit),
                Instruction::Address => 0,
            },
            or_none(l.owner),
            or_none(l.is_entry),
            l.file,
            l.name,
            l.first_line,
            l.lines,
            l.lines_are as u64,
            l.instructions,
            l.text.0,
            l.text.1,
            or_none(l.copies.map(|(number, _)| number)),
            or_none(l.copies.map(|(_, list)| list)),
            self.text.0,
            self.text.1,
        ]
    }

    /// Unpacks it from words.
    pub fn of_words(words: &[u64; INTERPRETER_WORDS]) -> Interpreter {
        let [
            runtime,
            thread_of,
            current,
            code_type,
            one_lock,
            interpreters,
            next_interpreter,
            threads,
            next_thread,
            interpreter,
            pthread,
            tid,
            frame,
            behind,
            previous,
            code,
            instruction,
            unit,
            owner,
            is_entry,
            file,
            name,
            first_line,
            lines,
            lines_are,
            instructions,
            ascii,
            other,
            copy,
            copies,
            start,
            end,
        ] = *words;
        let or_none = |offset: u64| (offset != NONE).then_some(offset);
        Interpreter {
            runtime,
            thread_of,
            current,
            code_type,
            one_lock: one_lock != 0,
            text: (start, end),
            layout: Layout {
                interpreters,
                next_interpreter,
                threads,
                next_thread,
                interpreter,
                pthread,
                tid: or_none(tid),
                frame: (frame, or_none(behind)),
                previous,
                code,
                instruction,
                instruction_is: match unit {
                    0 => Instruction::Address,
                    unit => Instruction::Offset(unit as u32),
                },
                owner: or_none(owner),
                is_entry: or_none(is_entry),
                file,
                name,
                first_line,
                lines,
                lines_are: match lines_are {
                    0 => Lines::Pairs,
                    1 => Lines::Ranges,
                    _ => Lines::Locations,
                },
                instructions,
                text: (ascii, other),
                copies: or_none(copy).zip(or_none(copies)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_round_trips() {
        let mut words = [0; INTERPRETER_WORDS];
        for (at, word) in words.iter_mut().enumerate() {
            *word = 100 + at as u64;
        }
        (words[4], words[11], words[13], words[17], words[18], words[24]) =
            (1, NONE, NONE, 0, NONE, 1);
        let interpreter = Interpreter::of_words(&words);
        assert_eq!(interpreter.words(), words);
        assert_eq!(interpreter.layout.instruction_is, Instruction::Address);
        assert_eq!((interpreter.layout.tid, interpreter.layout.is_entry), (None, Some(119)));
        assert_eq!(interpreter.layout.lines_are, Lines::Ranges);
        assert_eq!(interpreter.layout.copies, Some((128, 129)));
        let units =
            Layout { copies: None, instruction_is: Instruction::Offset(2), ..interpreter.layout };
        let other = Interpreter { layout: units, ..interpreter };
        assert_eq!(Interpreter::of_words(&other.words()), other);
    }
}
