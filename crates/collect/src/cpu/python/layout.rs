//! Where CPython keeps what is read, by version.
//!
//! From 3.13 on the interpreter publishes its own offsets at the head of
//! `_PyRuntime`. Those of older versions were printed by programs compiled with
//! the release builds' own headers; they do not change within a minor version.

use super::memory::Memory;

/// How a frame finds the interpreter's current instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// An offset in the code, in units of so many bytes.
    Offset(u32),
    /// An address in the code.
    Address,
}

/// How lines are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// Pairs of bytes (to 3.9).
    Pairs,
    /// Pairs of bytes with signs and gaps (3.10).
    Ranges,
    /// Locations of variable length (from 3.11).
    Locations,
}

/// Where the lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// In the runtime: holder, and whether it is locked.
    Runtime(u64, u64),
    /// Behind a pointer of the interpreter: pointer, holder, locked.
    Interpreter(u64, u64, u64),
    /// There is none.
    Free,
}

/// Offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// First interpreter, in the runtime.
    pub interpreters: u64,
    /// Next interpreter, in an interpreter.
    pub next_interpreter: u64,
    /// First thread, in an interpreter.
    pub threads: u64,
    /// In a thread's state.
    pub next_thread: u64,
    /// Its interpreter.
    pub interpreter: u64,
    /// Its `pthread_t`.
    pub pthread: u64,
    /// Its tid, where it keeps one.
    pub tid: Option<u64>,
    /// Its frame; where there is a second offset, behind that pointer.
    pub frame: (u64, Option<u64>),
    /// In a frame: its caller.
    pub previous: u64,
    /// Its code.
    pub code: u64,
    /// Where it is.
    pub instruction: u64,
    /// What that is.
    pub instruction_is: Instruction,
    /// Who owns it: from 3.12 on the interpreter's own frames are told by this.
    pub owner: Option<u64>,
    /// Whether a call of the interpreter's loop began with it (3.11).
    pub is_entry: Option<u64>,
    /// In a code object.
    pub file: u64,
    /// Its name, qualified where there is one.
    pub name: u64,
    /// First line.
    pub first_line: u64,
    /// Table of lines.
    pub lines: u64,
    /// How it is written.
    pub lines_are: Lines,
    /// First instruction, where frames keep addresses.
    pub instructions: u64,
    /// Characters of a string of ASCII; of another.
    pub text: (u64, u64),
    /// The lock.
    pub lock: Lock,
}

impl Layout {
    /// Offsets of a version without published ones.
    pub fn of(minor: u8) -> Option<Layout> {
        let old = Layout {
            interpreters: 32,
            next_interpreter: 0,
            threads: 8,
            next_thread: 8,
            interpreter: 16,
            pthread: 176,
            tid: None,
            frame: (24, None),
            previous: 24,
            code: 32,
            instruction: 104,
            instruction_is: Instruction::Offset(1),
            owner: None,
            is_entry: None,
            file: 104,
            name: 112,
            first_line: 40,
            lines: 120,
            lines_are: Lines::Pairs,
            instructions: 0,
            text: (48, 72),
            lock: Lock::Runtime(1160, 1168),
        };
        Some(match minor {
            8 => old,
            9 => Layout { lock: Lock::Runtime(360, 368), ..old },
            10 => Layout {
                instruction: 96,
                instruction_is: Instruction::Offset(2),
                lines_are: Lines::Ranges,
                lock: Lock::Runtime(360, 368),
                ..old
            },
            11 => Layout {
                interpreters: 40,
                threads: 16,
                pthread: 152,
                tid: Some(160),
                frame: (56, Some(8)),
                previous: 48,
                code: 32,
                instruction: 56,
                instruction_is: Instruction::Address,
                is_entry: Some(68),
                file: 112,
                name: 128,
                first_line: 72,
                lines: 136,
                lines_are: Lines::Locations,
                instructions: 184,
                lock: Lock::Runtime(368, 376),
                ..old
            },
            12 => Layout {
                interpreters: 40,
                threads: 72,
                pthread: 136,
                tid: Some(144),
                frame: (56, Some(0)),
                previous: 8,
                code: 0,
                instruction: 56,
                instruction_is: Instruction::Address,
                owner: Some(70),
                file: 112,
                name: 128,
                first_line: 68,
                lines: 136,
                lines_are: Lines::Locations,
                instructions: 192,
                text: (40, 56),
                lock: Lock::Interpreter(384, 8, 16),
                ..old
            },
            _ => return None,
        })
    }

    /// The offsets that an interpreter publishes at the head of its runtime.
    pub fn published(memory: &Memory, runtime: u64) -> Result<Layout, String> {
        const COOKIE: &[u8] = b"xdebugpy";
        let head = memory.bytes(runtime, 24).ok_or("its memory may not be read")?;
        if &head[..8] != COOKIE {
            return Err("its runtime does not begin as CPython's does".to_owned());
        }
        let word = |at: u64| memory.u64(runtime + 24 + at * 8).ok_or("its memory may not be read");
        let minor = head[8 + 2];
        let free_threaded = head[16] != 0;
        // Where each part begins, in words: they grew between versions.
        let (threads_head, gil, thread, frame, code, strings) = match minor {
            13 => (3 + 3, 3 + 8, 16, 25, 31, 64),
            14 => (3 + 3, 3 + 9, 19, 28, 36, 74),
            _ => return Err(format!("Python 3.{minor} is newer than what this tprof can read")),
        };
        let (ascii, base) = (word(strings + 3)?, word(gil + 1)?);
        let lock = match free_threaded {
            true => Lock::Free,
            false => Lock::Interpreter(
                word(gil)?,
                word(gil + 4)?.wrapping_sub(base),
                word(gil + 3)?.wrapping_sub(base),
            ),
        };
        Ok(Layout {
            interpreters: word(2)?,
            next_interpreter: word(5)?,
            threads: word(threads_head)?,
            next_thread: word(thread + 2)?,
            interpreter: word(thread + 3)?,
            pthread: word(thread + 5)?,
            tid: Some(word(thread + 6)?),
            frame: (word(thread + 4)?, None),
            previous: word(frame + 1)?,
            code: word(frame + 2)?,
            instruction: word(frame + 3)?,
            instruction_is: Instruction::Address,
            owner: Some(word(frame + 5)?),
            is_entry: None,
            file: word(code + 1)?,
            name: word(code + 3)?,
            first_line: word(code + 5)?,
            lines: word(code + 4)?,
            lines_are: Lines::Locations,
            instructions: word(code + 9)?,
            text: (ascii, ascii + 16),
            lock,
        })
    }
}
