//! CodeObject objects: name, file, and lines by instruction.

use super::memory::ProcessMemory;
use super::naming::NamingFunction;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::time::{Duration, Instant};
use tprof_wire::python::{self, Chars, CodeHead, Layout, Memory as _};

/// CodeObject objects that are kept.
const MAX_CODES: usize = 1 << 16;
/// Bytes of an object that hold everything that is read to check it, in any version.
const HEAD_BYTES: usize = 160;
/// An object is checked to be the same at least that often: its memory may have
/// been given to another.
const CHECK: Duration = Duration::from_secs(1);
/// A code object that was first seen a moment ago is checked sooner, after this share of the time
/// since: code that a program compiles and runs once, as it begins, is soon gone.
const CHECK_SHARE: u32 = 16;

/// A code object.
pub struct CodeObject {
    /// Function, qualified by its class where the version has it.
    pub name: String,
    /// Path of its file.
    pub file: String,
    /// The interpreter keeps it for itself: it belongs to no function.
    pub is_own: bool,
    /// How its frames show the name of their thread.
    pub named_by: Option<NamingFunction>,
    first_line: u32,
    lines: Vec<u8>,
    /// Lines of the instructions seen so far: the table is read from its beginning for each.
    met: RefCell<FxHashMap<u64, u32>>,
    /// Pointers that separate it from another at the same address.
    identity: [u64; 3],
    read: Instant,
    checked: Instant,
}

/// Code objects seen so far, by address; `None` for addresses without one.
#[derive(Default)]
pub struct CodeCache {
    known: FxHashMap<u64, Option<CodeObject>>,
}

impl CodeCache {
    /// Returns where to read ahead for those of these addresses that will be checked.
    pub fn due(&self, at: impl Iterator<Item = u64>) -> impl Iterator<Item = (u64, usize)> {
        let due = at.filter(|at| matches!(self.known.get(at), Some(Some(code)) if code.is_due()));
        due.map(|at| (at, HEAD_BYTES))
    }

    /// The code object at an address.
    pub fn get(&mut self, memory: &ProcessMemory, layout: &Layout, at: u64) -> Option<&CodeObject> {
        if self.known.len() > MAX_CODES {
            self.known.clear();
        }
        let stale = match self.known.get_mut(&at) {
            Some(Some(code)) if code.is_due() => {
                code.checked = Instant::now();
                identity_at(memory, layout, at) != Some(code.identity)
            }
            Some(Some(_)) => false,
            // An object that could not be read once may be complete now.
            Some(None) | None => true,
        };
        if stale {
            self.known.insert(at, read(memory, layout, at));
        }
        self.known.get(&at)?.as_ref()
    }
}

/// Pointers and numbers that separate a code object from another at its address.
fn identity(head: &CodeHead) -> [u64; 3] {
    [head.name, head.file, u64::from(head.first_line)]
}

/// Does the same for the object that is at an address now.
fn identity_at(mut memory: &ProcessMemory, layout: &Layout, at: u64) -> Option<[u64; 3]> {
    let name = memory.u64(at.wrapping_add(layout.name))?;
    let file = memory.u64(at.wrapping_add(layout.file))?;
    Some([name, file, u64::from(memory.u32(at.wrapping_add(layout.first_line))?)])
}

fn read(mut memory: &ProcessMemory, layout: &Layout, at: u64) -> Option<CodeObject> {
    let head = python::code(&mut memory, layout, at)?;
    let len = head.lines_bytes as usize;
    let is_own = head.name == 0;
    let text = |at: u64| if is_own { Some(String::new()) } else { text(memory, layout, at) };
    let (name, file) = (text(head.name)?, text(head.file)?);
    if is_prose(&file) {
        return None;
    }
    Some(CodeObject {
        named_by: NamingFunction::of(&name, &file),
        name,
        file,
        is_own,
        first_line: head.first_line,
        lines: if len == 0 { Vec::new() } else { memory.bytes(head.lines, len)? },
        met: RefCell::default(),
        identity: identity(&head),
        read: Instant::now(),
        checked: Instant::now(),
    })
}

/// Whether a text is not a file's name: the object went away while it was read, and a message is
/// where the name was.
fn is_prose(file: &str) -> bool {
    file.contains(' ') && !file.contains(['/', '<']) && !file.ends_with(".py")
}

/// A string: only compact ones, as all names of code are.
pub fn text(mut memory: &ProcessMemory, layout: &Layout, at: u64) -> Option<String> {
    let text = python::text(&mut memory, layout, at)?;
    let bytes = match text.bytes {
        0 => Vec::new(),
        len => memory.bytes(text.at, len as usize)?,
    };
    decode(text.chars, &bytes)
}

/// The characters of a string.
pub fn decode(chars: Chars, bytes: &[u8]) -> Option<String> {
    Some(match chars {
        Chars::Ascii => String::from_utf8(bytes.to_vec()).ok()?,
        Chars::Latin => bytes.iter().map(|b| char::from(*b)).collect(),
        Chars::Two => {
            let units = bytes.chunks_exact(2).map(|b| u32::from(u16::from_le_bytes([b[0], b[1]])));
            units.map(|unit| char::from_u32(unit).unwrap_or('\u{fffd}')).collect()
        }
        Chars::Four => {
            let units = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            units.map(|unit| char::from_u32(unit).unwrap_or('\u{fffd}')).collect()
        }
    })
}

impl CodeObject {
    fn is_due(&self) -> bool {
        self.checked.elapsed() > CHECK.min(self.read.elapsed() / CHECK_SHARE)
    }

    /// The line of an instruction; the first one's if it is not in the table.
    pub fn line(&self, layout: &Layout, code: u64, instruction: u64) -> u32 {
        *self.met.borrow_mut().entry(instruction).or_insert_with(|| {
            let table = self.lines.iter().copied();
            python::line(layout, code, self.first_line, instruction, table)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_no_file() {
        assert!(is_prose("'str' object cannot be interpreted as an integer"));
        for file in ["/home/me/my jobs/train.py", "<frozen importlib._bootstrap>", "my job.py", "x"]
        {
            assert!(!is_prose(file), "{file}");
        }
    }
}
