//! Code objects, strings and tables of lines.

use super::layout::Layout;
use super::memory::Memory;

/// Longest name or path that is accepted, characters.
pub const MAX_TEXT: u64 = 4096;
/// Longest table of lines that is read, bytes.
pub const MAX_LINES: u64 = 1 << 20;

/// Where a code object's parts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeHead {
    /// Its name: a string; 0 in code that the interpreter keeps for itself.
    pub name: u64,
    /// Its file: a string.
    pub file: u64,
    /// First line.
    pub first_line: u32,
    /// First byte of its table of lines.
    pub lines: u64,
    /// Bytes of that table.
    pub lines_bytes: u64,
}

/// Reads a code object.
pub fn code(memory: &mut impl Memory, layout: &Layout, at: u64) -> Option<CodeHead> {
    let name = memory.u64(at.wrapping_add(layout.name))?;
    let file = memory.u64(at.wrapping_add(layout.file))?;
    let first_line = memory.u32(at.wrapping_add(layout.first_line))?;
    // A bytes object: length at 16, contents at 32.
    let lines = memory.u64(at.wrapping_add(layout.lines))?;
    let lines_bytes = memory.u64(lines.wrapping_add(16)).filter(|len| *len <= MAX_LINES)?;
    Some(CodeHead { name, file, first_line, lines: lines.wrapping_add(32), lines_bytes })
}

/// What a string's characters take.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chars {
    /// A byte, below 128.
    Ascii = 0,
    /// A byte.
    Latin = 1,
    /// Two bytes.
    Two = 2,
    /// Four bytes.
    Four = 4,
}

impl Chars {
    /// Decodes what a target wrote.
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

/// Where a string's characters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    /// Address of the first.
    pub at: u64,
    /// Bytes of them all.
    pub bytes: u64,
    /// What each takes.
    pub chars: Chars,
}

/// Finds a string's characters: only of compact strings, as all names of code are.
pub fn text(memory: &mut impl Memory, layout: &Layout, at: u64) -> Option<Text> {
    let len = memory.u64(at.wrapping_add(16)).filter(|len| *len <= MAX_TEXT)?;
    let state = memory.u32(at.wrapping_add(32))?;
    // From 3.14 on the bits of interning take two bytes, before that two bits;
    // kind, compact and ascii follow.
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
    let (chars, kind) = parse(state >> 2).or_else(|| parse(state >> 16))?;
    let from = if chars == Chars::Ascii { layout.text.0 } else { layout.text.1 };
    Some(Text { at: at.wrapping_add(from), bytes: len * kind, chars })
}
