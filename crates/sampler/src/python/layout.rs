//! Where fields are in CPython's objects, by version.
//!
//! From 3.13 on, the interpreter publishes these offsets at the beginning of `_PyRuntime`. For
//! older versions they were printed by programs that were compiled with the headers of the release
//! builds. They are the same in all releases of a minor version.

use super::memory::ProcessMemory;
use tprof_wire::python::{Instruction, Layout, Lines, Memory as _};

/// Where the GIL is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockLocation {
    /// In the runtime: the offsets of the GIL's holder and of its locked flag.
    Runtime(u64, u64),
    /// In a structure that the interpreter's state points to: the offset of the pointer in the
    /// state, and those of holder and locked flag in the structure.
    Interpreter(u64, u64, u64),
    /// Nowhere: the build has no GIL.
    Free,
}

/// What is known about a version's objects, and where its GIL is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownLayout {
    /// Offsets of the fields.
    pub layout: Layout,
    /// Location of the GIL.
    pub lock: LockLocation,
    /// Offsets of variables and attributes. `None` for builds without the GIL, whose objects
    /// differ.
    pub objects: Option<Objects>,
}

/// Where an object stores its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// In a dictionary, at an offset that the object's type contains (up to 3.10).
    Dictionary,
    /// In a dictionary or in the object's own values. Pointers to both are before the object
    /// (3.11).
    OwnValues,
    /// In a dictionary or in values. One pointer before the object leads to either, and a tag tells
    /// which (3.12).
    Tagged,
    /// In a dictionary, or in values within the object (from 3.13).
    Inline,
}

/// Offsets that are needed to read variables and attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Objects {
    /// In a frame: the first local variable.
    pub locals: u64,
    /// In a code object: the tuple of the names of local variables.
    pub local_names: u64,
    /// In a type: the keys that its objects' attributes share.
    pub shared_keys: u64,
    /// How objects store their attributes.
    pub attributes: Attributes,
    /// Whether the number of digits of an integer is in a word together with flags (from 3.12).
    pub tagged_integers: bool,
}

impl KnownLayout {
    /// Returns the offsets of a version that doesn't publish them; `None` for unknown versions.
    pub fn of(minor: u8) -> Option<KnownLayout> {
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
            copies: None,
        };
        let lock = match minor {
            8 => LockLocation::Runtime(1160, 1168),
            9 | 10 => LockLocation::Runtime(360, 368),
            11 => LockLocation::Runtime(368, 376),
            _ => LockLocation::Interpreter(384, 8, 16),
        };
        let layout = match minor {
            8 | 9 => old,
            10 => Layout {
                instruction: 96,
                instruction_is: Instruction::Offset(2),
                lines_are: Lines::Ranges,
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
                ..old
            },
            _ => return None,
        };
        let objects = Objects {
            locals: match minor {
                8 | 9 => 360,
                10 => 352,
                _ => 72,
            },
            local_names: if minor < 11 { 72 } else { 96 },
            shared_keys: match minor {
                9 => 864,
                12 => 880,
                _ => 872,
            },
            attributes: match minor {
                11 => Attributes::OwnValues,
                12 => Attributes::Tagged,
                _ => Attributes::Dictionary,
            },
            tagged_integers: minor >= 12,
        };
        Some(KnownLayout { layout, lock, objects: Some(objects) })
    }

    /// Reads the offsets that an interpreter publishes at the beginning of its runtime.
    pub fn published(mut memory: &ProcessMemory, runtime: u64) -> Result<KnownLayout, String> {
        const COOKIE: &[u8] = b"xdebugpy";
        let head = memory.bytes(runtime, 24).ok_or("its memory may not be read")?;
        if &head[..8] != COOKIE {
            return Err("its runtime does not begin as CPython's does".to_owned());
        }
        let mut word =
            |at: u64| memory.u64(runtime + 24 + at * 8).ok_or("its memory may not be read");
        let minor = head[8 + 2];
        let free_threaded = head[16] != 0;
        // Where the parts of the published table begin, in words. Parts have grown between
        // versions.
        let (threads_head, gil, thread, frame, code, strings) = match minor {
            13 => (3 + 3, 3 + 8, 16, 25, 31, 64),
            14 => (3 + 3, 3 + 9, 19, 28, 36, 74),
            _ => return Err(format!("Python 3.{minor} is newer than what this tprof can read")),
        };
        let (ascii, base) = (word(strings + 3)?, word(gil + 1)?);
        let lock = match free_threaded {
            true => LockLocation::Free,
            false => LockLocation::Interpreter(
                word(gil)?,
                word(gil + 4)?.wrapping_sub(base),
                word(gil + 3)?.wrapping_sub(base),
            ),
        };
        let copies = match (minor, free_threaded) {
            (14, true) => Some((word(frame + 7)?, word(code + 10)?)),
            _ => None,
        };
        let layout = Layout {
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
            copies,
        };
        let objects = Objects {
            locals: word(frame + 4)?,
            local_names: word(code + 7)?,
            // The interpreter doesn't publish this offset.
            shared_keys: 880,
            attributes: Attributes::Inline,
            tagged_integers: true,
        };
        Ok(KnownLayout { layout, lock, objects: (!free_threaded).then_some(objects) })
    }
}
