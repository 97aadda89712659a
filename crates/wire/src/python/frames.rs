//! Walks a thread's frames.

use super::layout::{Instruction, Layout};
use super::memory::Memory;

/// From 3.12 on: frames that are the interpreter's own have an owner from here on.
const FIRST_OWN: u8 = 3;
/// Frames of the interpreter's own between two of Python's that are accepted.
const MOST_OWN: usize = 8;

/// A frame before its code was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFrame {
    /// Address of the frame.
    pub at: u64,
    /// Address of its code object.
    pub code: u64,
    /// Where it is: an address or an offset, by the layout.
    pub instruction: u64,
    /// It is the outermost that its call of the interpreter's loop runs.
    pub entry: bool,
}

/// How a walk ends.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// At the outermost frame.
    Whole = 0,
    /// There are more frames than were asked for.
    TooDeep = 1,
    /// At what could not be read, or is no frame.
    Unreadable = 2,
}

impl Ends {
    /// Decodes what a target wrote.
    pub fn of(value: u64) -> Ends {
        match value {
            0 => Ends::Whole,
            1 => Ends::TooDeep,
            _ => Ends::Unreadable,
        }
    }
}

/// Gives the frames of a thread, innermost first, `most` of them; false from `give` ends
/// the walk as unreadable. `None` if the thread's state could not be read.
pub fn frames(
    memory: &mut impl Memory,
    layout: &Layout,
    state: u64,
    most: usize,
    mut give: impl FnMut(RawFrame) -> bool,
) -> Option<Ends> {
    let (first, second) = layout.frame;
    let mut frame = memory.u64(state.wrapping_add(first))?;
    if let Some(second) = second {
        frame = memory.u64(frame.wrapping_add(second))?;
    }
    // Whether a frame is the outermost of its call shows at the next one.
    let mut held: Option<RawFrame> = None;
    let mut count = 0;
    let mut own_in_a_row = 0;
    while frame != 0 {
        let Some((raw, own, previous)) = one(memory, layout, frame) else {
            if let Some(held) = held {
                give(held);
            }
            return Some(Ends::Unreadable);
        };
        frame = previous;
        if own {
            // The interpreter's own frame stands for the call of its loop.
            if let Some(held) = &mut held {
                held.entry = true;
            }
            own_in_a_row += 1;
            if own_in_a_row > MOST_OWN {
                break;
            }
            continue;
        }
        own_in_a_row = 0;
        if let Some(held) = held.replace(raw)
            && !give(held)
        {
            return Some(Ends::Unreadable);
        }
        count += 1;
        if count > most {
            return Some(Ends::TooDeep);
        }
    }
    if let Some(held) = held
        && !give(RawFrame { entry: true, ..held })
    {
        return Some(Ends::Unreadable);
    }
    Some(if frame == 0 { Ends::Whole } else { Ends::Unreadable })
}

/// A frame, whether it is the interpreter's own, and its caller.
fn one(memory: &mut impl Memory, layout: &Layout, frame: u64) -> Option<(RawFrame, bool, u64)> {
    let own = match layout.owner {
        Some(owner) => memory.u8(frame.wrapping_add(owner))? >= FIRST_OWN,
        None => false,
    };
    let code = memory.u64(frame.wrapping_add(layout.code))?;
    let previous = memory.u64(frame.wrapping_add(layout.previous))?;
    let at = frame.wrapping_add(layout.instruction);
    // The low bits tag references from 3.14 on.
    let code = code & !7;
    let instruction = match (layout.instruction_is, layout.copies) {
        (Instruction::Offset(_), _) => u64::from(memory.u32(at)?),
        (Instruction::Address, Some(copies)) if !own => {
            let address = memory.u64(at)?;
            in_code(memory, layout, copies, frame, code, address)?
        }
        (Instruction::Address, _) => memory.u64(at)?,
    };
    let entry = match (layout.is_entry, layout.owner) {
        (Some(is_entry), _) => {
            memory.u8(frame.wrapping_add(is_entry)).is_some_and(|flag| flag != 0)
        }
        (None, Some(_)) => false,
        // To 3.10 each frame is a call of the loop.
        (None, None) => true,
    };
    Some((RawFrame { at: frame, code, instruction, entry }, own, previous))
}

/// The place in a code object of an instruction that lies in a thread's copy of its instructions.
fn in_code(
    memory: &mut impl Memory,
    layout: &Layout,
    (number, list): (u64, u64),
    frame: u64,
    code: u64,
    instruction: u64,
) -> Option<u64> {
    let number = u64::from(memory.u32(frame.wrapping_add(number))?);
    // Number 0 is the code object's own. The list begins with its length.
    if number == 0 {
        return Some(instruction);
    }
    let list = memory.u64(code.wrapping_add(list))?;
    let copy = memory.u64(list.wrapping_add(8 + 8 * number))?;
    Some(instruction.wrapping_sub(copy).wrapping_add(code).wrapping_add(layout.instructions))
}
