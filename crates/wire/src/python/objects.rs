//! Reads code objects, and finds the characters of strings.

use super::layout::Layout;
use super::memory::{Memory, OBJECT, u32_in};

/// Longest name or path that is read, in characters. A longer one counts as unreadable.
pub const MAX_TEXT: u64 = 4096;
/// Longest line table that is read, in bytes.
pub const MAX_LINES: u64 = 1 << 20;

/// Addresses and values of the fields of a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeHead {
    /// Address of the object's type, which shows whether it is a code object.
    pub kind: u64,
    /// Address of its name, a string; 0 for the interpreter's own code.
    pub name: u64,
    /// Address of its file, a string.
    pub file: u64,
    /// Number of the first line.
    pub first_line: u32,
    /// Address of the first byte of its line table.
    pub lines: u64,
    /// Bytes of its line table.
    pub lines_bytes: u64,
}

/// Offsets of a code object's fields.
pub struct CodeFields {
    /// Offsets of the words with its type, name, file, first line and line table.
    fields: [u64; 5],
    /// Offset of the first line.
    first_line: u64,
    /// Bytes of an object's header.
    head: u64,
}

impl CodeFields {
    /// The offsets according to a layout; `None` if an offset is impossibly large.
    #[inline(always)]
    pub fn of(layout: &Layout) -> Option<CodeFields> {
        let &Layout { name, file, first_line, lines, .. } = layout;
        let head = layout.head();
        let fields = [head - 8, name, file, first_line, lines].map(|at| at & !7);
        let is_near = fields.iter().all(|at| *at < OBJECT);
        is_near.then_some(CodeFields { fields, first_line, head })
    }

    /// Reads a code object; `None` if its memory can't be read or its line table is too long.
    #[inline(always)]
    pub fn read(&self, memory: &mut impl Memory, at: u64) -> Option<CodeHead> {
        let [kind, name, file, first_line, lines] = memory.fields(at, self.fields)?;
        let first_line = u32_in(first_line, self.first_line);
        // The line table is a bytes object: its length and hash follow the header, then its
        // contents.
        let lines = lines.wrapping_add(self.head);
        let lines_bytes = memory.u64(lines).filter(|len| *len <= MAX_LINES)?;
        Some(CodeHead { kind, name, file, first_line, lines: lines.wrapping_add(16), lines_bytes })
    }
}

/// Reads a code object.
pub fn code(memory: &mut impl Memory, layout: &Layout, at: u64) -> Option<CodeHead> {
    CodeFields::of(layout)?.read(memory, at)
}

/// The width and encoding of a string's characters.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chars {
    /// One byte each, below 128: ASCII.
    Ascii = 0,
    /// One byte each: Latin-1.
    Latin = 1,
    /// Two bytes each: UCS-2.
    Two = 2,
    /// Four bytes each: UCS-4.
    Four = 4,
}

impl Chars {
    /// Decodes a value that a target wrote.
    pub fn of(value: u64) -> Option<Chars> {
        Some(match value {
            0 => Chars::Ascii,
            1 => Chars::Latin,
            2 => Chars::Two,
            4 => Chars::Four,
            _ => return None,
        })
    }
}

/// The location of a string's characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    /// Address of the first character.
    pub at: u64,
    /// Number of bytes of all characters.
    pub bytes: u64,
    /// Encoding of the characters.
    pub chars: Chars,
}

/// The hash of a string's contents, which Python stores in the string; `None` if Python has not
/// computed it yet.
#[inline(always)]
pub fn text_hash(memory: &mut impl Memory, layout: &Layout, at: u64) -> Option<u64> {
    const UNKNOWN: u64 = u64::MAX;
    memory.u64(at.wrapping_add(layout.head() + 8)).filter(|hash| *hash != UNKNOWN)
}

/// Finds a string's characters. Only compact strings are supported; all names in code objects are
/// compact.
#[inline(always)]
pub fn text(memory: &mut impl Memory, layout: &Layout, at: u64) -> Option<Text> {
    let [len, state] = memory.fields(at, [layout.head(), layout.head() + 16])?;
    let (len, state) = (Some(len).filter(|len| *len <= MAX_TEXT)?, state as u32);
    // The interning flags in the lowest bits have 2 bits. Without the GIL they have one byte, or
    // two bytes in 3.13 and in early versions of 3.14. The kind and the flags "compact" and "ascii"
    // follow.
    let parse = |bits: u32| {
        let (kind, compact, ascii) = (bits & 7, bits >> 3 & 1, bits >> 4 & 1);
        let chars = match kind {
            1 if ascii == 1 => Chars::Ascii,
            1 => Chars::Latin,
            2 => Chars::Two,
            4 => Chars::Four,
            _ => return None,
        };
        (compact == 1).then_some((chars, u64::from(kind)))
    };
    let (chars, kind) = [2, 8, 16].into_iter().find_map(|bits| parse(state >> bits))?;
    let from = if chars == Chars::Ascii { layout.text.0 } else { layout.text.1 };
    Some(Text { at: at.wrapping_add(from), bytes: len * kind, chars })
}
