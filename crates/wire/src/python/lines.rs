//! Finds the source line of a bytecode instruction in a code object's line table.

use super::layout::{Instruction, Layout, Lines};

/// The line of an instruction of the code object at `code`, from its line table; the code's first
/// line if the table doesn't contain the instruction.
pub fn line(
    layout: &Layout,
    code: u64,
    first_line: u32,
    instruction: u64,
    table: impl Iterator<Item = u8>,
) -> u32 {
    let offset = offset(layout, code, instruction);
    let line = match layout.lines_are {
        Lines::Pairs => by_pairs(table, offset),
        Lines::Ranges => by_ranges(table, offset),
        Lines::Locations => by_locations(table, offset),
    };
    first_line.saturating_add_signed(line.unwrap_or(0))
}

/// Bytes from the first instruction to this one.
pub fn offset(layout: &Layout, code: u64, instruction: u64) -> u64 {
    match layout.instruction_is {
        // Before the first instruction has run, the offset is -1.
        Instruction::Offset(unit) => (instruction as u32 as i32).max(0) as u64 * u64::from(unit),
        Instruction::Address => instruction.saturating_sub(code.wrapping_add(layout.instructions)),
    }
}

/// Up to 3.9: pairs of bytes, which advance the code offset and then the line.
fn by_pairs(mut table: impl Iterator<Item = u8>, offset: u64) -> Option<i32> {
    let (mut at, mut line) = (0u64, 0i32);
    while let (Some(bytes), Some(step)) = (table.next(), table.next()) {
        at += u64::from(bytes);
        if at > offset {
            break;
        }
        line = line.saturating_add(i32::from(step as i8));
    }
    Some(line)
}

/// 3.10: pairs of a length in bytes and a line increment; an increment of -128 means that the range
/// has no line.
fn by_ranges(mut table: impl Iterator<Item = u8>, offset: u64) -> Option<i32> {
    let (mut at, mut line) = (0u64, 0i32);
    while let (Some(bytes), Some(step)) = (table.next(), table.next()) {
        at += u64::from(bytes);
        let step = step as i8;
        if step != -128 {
            line = line.saturating_add(i32::from(step));
        }
        if at > offset {
            return (step != -128).then_some(line);
        }
    }
    None
}

/// From 3.11 on: entries with a kind, a length in instructions, and for some kinds a line
/// increment, which is a signed number of variable length.
fn by_locations(table: impl Iterator<Item = u8>, offset: u64) -> Option<i32> {
    let mut bytes = table.peekable();
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
        // Columns follow, which are not needed. The next entry begins with a byte that has the high
        // bit set.
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

/// Reads a signed number of variable length: six bits per byte, the lowest first. The number's
/// lowest bit is its sign.
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
        // Two instructions are on the first line, the next one is two lines further, and the last
        // one another three lines further.
        let pairs = [0, 0, 4, 2, 2, 3];
        let at = |offset| by_pairs(pairs.into_iter(), offset);
        assert_eq!([at(0), at(2), at(4), at(6)], [Some(0), Some(0), Some(2), Some(5)]);
        let ranges = [4, 0, 2, 2, 2, 0x80, 2, 3];
        let at = |offset| by_ranges(ranges.into_iter(), offset);
        assert_eq!([at(0), at(4), at(6), at(8)], [Some(0), Some(2), None, Some(5)]);
        // A short form (two instructions), a form that goes one line further (one instruction), a
        // long form that goes two lines further (one), an entry without a line (one), and a long
        // form that goes three lines back (one).
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
        let at = |offset| by_locations(locations.into_iter(), offset);
        assert_eq!([at(0), at(2), at(4)], [Some(0), Some(0), Some(1)]);
        assert_eq!([at(6), at(8), at(10), at(12)], [Some(3), None, Some(0), None]);
    }
}
