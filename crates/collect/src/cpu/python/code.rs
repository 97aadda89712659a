//! Code objects: name, file, and lines by instruction.

use super::layout::{Instruction, Layout, Lines};
use super::memory::Memory;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Longest name or path that is believed, bytes.
const MAX_TEXT: usize = 4096;
/// Longest table of lines that is read.
const MAX_LINES: usize = 1 << 20;
/// Code objects that are kept.
const MAX_CODES: usize = 1 << 16;
/// An object is checked to be the same at least that often: its memory may have
/// been given to another.
const CHECK: Duration = Duration::from_secs(1);
/// One that was met a moment ago is checked sooner, after this share of the time
/// since: what a program compiles and runs once, as it begins, is soon gone.
const CHECK_SHARE: u32 = 16;

/// A code object.
pub struct Code {
    /// Function, qualified by its class where the version tells.
    pub name: String,
    /// File.
    pub file: String,
    first_line: u32,
    lines: Vec<u8>,
    instructions: u64,
    /// Pointers that tell it from another at the same address.
    identity: [u64; 3],
    read: Instant,
    checked: Instant,
}

/// Code objects met so far, by address; `None` for what is none.
#[derive(Default)]
pub struct Codes {
    known: HashMap<u64, Option<Code>>,
}

impl Codes {
    /// The code object at an address.
    pub fn get(&mut self, memory: &Memory, layout: &Layout, at: u64) -> Option<&Code> {
        if self.known.len() > MAX_CODES {
            self.known.clear();
        }
        let stale = match self.known.get_mut(&at) {
            Some(Some(code)) if code.is_due() => {
                code.checked = Instant::now();
                identity(memory, layout, at) != Some(code.identity)
            }
            Some(Some(_)) => false,
            // What could not be read once may be whole now.
            Some(None) | None => true,
        };
        if stale {
            self.known.insert(at, read(memory, layout, at));
        }
        self.known.get(&at)?.as_ref()
    }
}

fn identity(memory: &Memory, layout: &Layout, at: u64) -> Option<[u64; 3]> {
    Some([
        memory.u64(at + layout.name)?,
        memory.u64(at + layout.file)?,
        u64::from(memory.u32(at + layout.first_line)?),
    ])
}

fn read(memory: &Memory, layout: &Layout, at: u64) -> Option<Code> {
    let identity = identity(memory, layout, at)?;
    let lines = memory.u64(at + layout.lines)?;
    // A bytes object: length at 16, contents at 32.
    let len = usize::try_from(memory.u64(lines + 16)?).ok().filter(|len| *len <= MAX_LINES)?;
    Some(Code {
        name: text(memory, layout, identity[0])?,
        file: text(memory, layout, identity[1])?,
        first_line: identity[2] as u32,
        lines: if len == 0 { Vec::new() } else { memory.bytes(lines + 32, len)? },
        instructions: at + layout.instructions,
        identity,
        read: Instant::now(),
        checked: Instant::now(),
    })
}

/// A string: compact ones alone, as all names of code are.
fn text(memory: &Memory, layout: &Layout, at: u64) -> Option<String> {
    let len = usize::try_from(memory.u64(at + 16)?).ok().filter(|len| *len <= MAX_TEXT)?;
    let state = memory.u32(at + 32)?;
    // From 3.14 on the bits of interning take two bytes, before that two bits;
    // kind, compact and ascii follow.
    let parsed = [state >> 2, state >> 16].into_iter().find_map(|bits| {
        let (kind, compact, ascii) = (bits & 7, bits >> 3 & 1, bits >> 4 & 1);
        (matches!(kind, 1 | 2 | 4) && compact == 1).then_some((kind as usize, ascii == 1))
    });
    let (kind, ascii) = parsed?;
    let from = at + if ascii { layout.text.0 } else { layout.text.1 };
    let bytes = if len == 0 { Vec::new() } else { memory.bytes(from, len * kind)? };
    let text: String = match kind {
        1 if ascii => String::from_utf8(bytes).ok()?,
        1 => bytes.iter().map(|b| char::from(*b)).collect(),
        2 => {
            let units = bytes.chunks_exact(2).map(|b| u32::from(u16::from_le_bytes([b[0], b[1]])));
            units.map(|unit| char::from_u32(unit).unwrap_or('\u{fffd}')).collect()
        }
        _ => {
            let units = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            units.map(|unit| char::from_u32(unit).unwrap_or('\u{fffd}')).collect()
        }
    };
    Some(text)
}

impl Code {
    fn is_due(&self) -> bool {
        self.checked.elapsed() > CHECK.min(self.read.elapsed() / CHECK_SHARE)
    }

    /// The line of an instruction; the first one's if it is not in the table.
    pub fn line(&self, layout: &Layout, instruction: u64) -> u32 {
        let offset = match layout.instruction_is {
            // Before the first instruction there is none: -1.
            Instruction::Offset(unit) => {
                (instruction as u32 as i32).max(0) as u64 * u64::from(unit)
            }
            Instruction::Address => instruction.saturating_sub(self.instructions),
        };
        let line = match layout.lines_are {
            Lines::Pairs => by_pairs(&self.lines, offset),
            Lines::Ranges => by_ranges(&self.lines, offset),
            Lines::Locations => by_locations(&self.lines, offset),
        };
        self.first_line.saturating_add_signed(line.unwrap_or(0))
    }
}

/// To 3.9: how many bytes of code, then how many lines further.
fn by_pairs(table: &[u8], offset: u64) -> Option<i32> {
    let (mut at, mut line) = (0u64, 0i32);
    for pair in table.chunks_exact(2) {
        at += u64::from(pair[0]);
        if at > offset {
            break;
        }
        line += i32::from(pair[1] as i8);
    }
    Some(line)
}

/// 3.10: how many lines further, for how many bytes; -128 is no line.
fn by_ranges(table: &[u8], offset: u64) -> Option<i32> {
    let (mut at, mut line) = (0u64, 0i32);
    for pair in table.chunks_exact(2) {
        at += u64::from(pair[0]);
        let step = pair[1] as i8;
        if step != -128 {
            line += i32::from(step);
        }
        if at > offset {
            return (step != -128).then_some(line);
        }
    }
    None
}

/// From 3.11: entries of a kind and a length in instructions, with lines as
/// signed numbers of variable length.
fn by_locations(table: &[u8], offset: u64) -> Option<i32> {
    let mut bytes = table.iter().copied().peekable();
    let (mut at, mut line) = (0u64, 0i32);
    while let Some(head) = bytes.next() {
        let (kind, units) = (head >> 3 & 15, u64::from(head & 7) + 1);
        let mut known = true;
        match kind {
            15 => known = false,
            13 | 14 => line = line.saturating_add(signed(&mut bytes)?),
            10..=12 => line = line.saturating_add(i32::from(kind) - 10),
            _ => {}
        }
        // Columns follow; the next entry begins with the high bit.
        while bytes.peek().is_some_and(|b| b & 0x80 == 0) {
            bytes.next();
        }
        at += units * 2;
        if at > offset {
            return known.then_some(line);
        }
    }
    None
}

/// Six bits a byte, the lowest first; the lowest bit of the number is its sign.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i32> {
    let (mut value, mut shift) = (0u32, 0);
    loop {
        let byte = bytes.next()?;
        value |= u32::from(byte & 63).checked_shl(shift)?;
        shift += 6;
        if byte & 64 == 0 {
            break;
        }
    }
    let size = (value >> 1) as i32;
    Some(if value & 1 == 1 { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_version_are_found() {
        // Two instructions on the first line, then one each two and three further.
        let pairs = [0, 0, 4, 2, 2, 3];
        let at = |offset| by_pairs(&pairs, offset);
        assert_eq!([at(0), at(2), at(4), at(6)], [Some(0), Some(0), Some(2), Some(5)]);
        let ranges = [4, 0, 2, 2, 2, 0x80, 2, 3];
        let at = |offset| by_ranges(&ranges, offset);
        assert_eq!([at(0), at(4), at(6), at(8)], [Some(0), Some(2), None, Some(5)]);
        // A short form (two instructions), one line on (one), a long form with
        // two lines on (one), no line (one), and three lines back (one).
        let locations = [
            0x80 | 1,
            0x12,
            0x80 | 11 << 3,
            1,
            2,
            0x80 | 13 << 3,
            4,
            0x80 | 15 << 3,
            0x80 | 13 << 3,
            7,
        ];
        let at = |offset| by_locations(&locations, offset);
        assert_eq!([at(0), at(2), at(4)], [Some(0), Some(0), Some(1)]);
        assert_eq!([at(6), at(8), at(10), at(12)], [Some(3), None, Some(0), None]);
    }
}
