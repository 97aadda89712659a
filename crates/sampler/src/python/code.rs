//! Reads and caches code objects: function name, file, and the line of each instruction.

use super::memory::ProcessMemory;
use super::naming::NamingFunction;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::time::{Duration, Instant};
use tprof_wire::python::{self, Chars, CodeHead, Layout, Memory as _};

/// Number of code objects that are cached.
const MAX_CODES: usize = 1 << 16;
/// Number of bytes at the beginning of an object that are needed to check it, in any version of
/// Python.
const HEAD_BYTES: usize = 160;
/// Longest time between two checks that a cached object is still the same. Its memory may be
/// reused.
const CHECK: Duration = Duration::from_secs(1);
/// A recently cached object is checked more often: after this share of the time since it was
/// cached. Code that a program compiles and runs once at its start may soon be freed.
const CHECK_SHARE: u32 = 16;

/// A code object of a process.
pub struct CodeObject {
    /// Name of the function; qualified by its class if this version of Python does that.
    pub name: String,
    /// Path of its file.
    pub file: String,
    /// Whether the interpreter uses it internally, so that its frames belong to no function.
    pub is_own: bool,
    /// How frames of this code tell the name of their thread, if they do.
    pub named_by: Option<NamingFunction>,
    first_line: u32,
    lines: Vec<u8>,
    /// Lines of the instructions seen so far, by address. Without this cache, the line table would
    /// be decoded from its beginning for each instruction.
    met: RefCell<FxHashMap<u64, u32>>,
    /// Values that differ if another object is at the same address now.
    identity: [u64; 3],
    read: Instant,
    checked: Instant,
}

/// The code objects seen so far, by address; `None` for addresses where none could be read.
#[derive(Default)]
pub struct CodeCache {
    known: FxHashMap<u64, Option<CodeObject>>,
}

impl CodeCache {
    /// Returns what to read ahead for those of these addresses whose objects will be checked:
    /// address and length.
    pub fn due(&self, at: impl Iterator<Item = u64>) -> impl Iterator<Item = (u64, usize)> {
        let due = at.filter(|at| matches!(self.known.get(at), Some(Some(code)) if code.is_due()));
        due.map(|at| (at, HEAD_BYTES))
    }

    /// Returns the code object at an address.
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
            // If an object could not be read before, it may be complete now.
            Some(None) | None => true,
        };
        if stale {
            self.known.insert(at, read(memory, layout, at));
        }
        self.known.get(&at)?.as_ref()
    }
}

/// Returns values that distinguish a code object from another one at the same address.
fn identity(head: &CodeHead) -> [u64; 3] {
    [head.name, head.file, u64::from(head.first_line)]
}

/// Returns the same values for the object that is at the address now.
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

/// Whether a text can't be the name of a file. If an object was freed while it was read, its memory
/// may contain a message now.
fn is_prose(file: &str) -> bool {
    file.contains(' ') && !file.contains(['/', '<']) && !file.ends_with(".py")
}

/// Reads a string. Only compact strings are supported, because all names of code are compact.
pub fn text(mut memory: &ProcessMemory, layout: &Layout, at: u64) -> Option<String> {
    let text = python::text(&mut memory, layout, at)?;
    let bytes = match text.bytes {
        0 => Vec::new(),
        len => memory.bytes(text.at, len as usize)?,
    };
    decode(text.chars, &bytes)
}

/// Decodes the characters of a string.
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

    /// Returns the line of an instruction; if the line table doesn't contain it, the function's
    /// first line.
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
    fn a_message_is_not_taken_for_a_file_name() {
        assert!(is_prose("'str' object cannot be interpreted as an integer"));
        for file in ["/home/me/my jobs/train.py", "<frozen importlib._bootstrap>", "my job.py", "x"]
        {
            assert!(!is_prose(file), "{file}");
        }
    }
}
