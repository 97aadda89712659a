//! Walks the Python frames of a thread, from the innermost one outward.

use super::layout::{Instruction, Layout};
use super::memory::{Memory, OBJECT, u8_in, u32_in};

/// The lowest value of a frame's `owner` that marks a frame of the interpreter itself, from CPython
/// 3.12 on.
const FIRST_OWN: u16 = 3;
/// Maximum number of consecutive frames of the interpreter itself between two Python frames.
const MAX_OWN_IN_A_ROW: usize = 8;

/// A frame whose code has not been read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFrame {
    /// Address of the frame.
    pub at: u64,
    /// Address of the frame's code object.
    pub code: u64,
    /// The current instruction: an address or an offset, depending on the layout.
    pub instruction: u64,
    /// 1 if this frame is the outermost one that its call of the evaluation loop runs, otherwise 0.
    /// The field is a word, so that the struct has no padding. Copying padding, in pieces of four
    /// bytes that straddle two recent writes, took 6 of the 9 ns per frame.
    pub entry: u64,
}

/// How a walk ended.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkEnd {
    /// The walk reached the outermost frame.
    Whole = 0,
    /// There were more frames than the caller asked for.
    TooDeep = 1,
    /// The walk met memory that could not be read, or that doesn't contain a frame.
    Unreadable = 2,
}

impl WalkEnd {
    /// Decodes a value that a target wrote.
    pub fn of(value: u64) -> WalkEnd {
        match value {
            0 => WalkEnd::Whole,
            1 => WalkEnd::TooDeep,
            _ => WalkEnd::Unreadable,
        }
    }
}

/// A thread's frames, innermost first.
pub struct Frames<'l> {
    layout: &'l Layout,
    /// Offsets of four words of a frame: its code, its caller, its instruction, and a flag. The
    /// flag is the frame's owner, or whether it is the outermost frame of its call.
    fields: [u64; 4],
    /// Offset of the flag, which is one byte.
    flag: u64,
    /// The lowest owner that marks a frame of the interpreter itself; 256 if this version has no
    /// such frames.
    first_own: u16,
    /// The lowest flag that marks the outermost frame of a call of the evaluation loop; 256 if the
    /// flag doesn't show this.
    first_entry: u16,
    /// Address of the next frame; 0 if there is none.
    next: u64,
    /// The last frame that was read. It is held back, because only the next frame shows whether it
    /// is the outermost frame of its call.
    held: Option<RawFrame>,
    left: usize,
    own_in_a_row: usize,
    ends: Option<WalkEnd>,
}

impl<'l> Frames<'l> {
    /// Begins at the innermost frame of the thread whose `PyThreadState` is at `state`, and returns
    /// at most `most` frames. Returns `None` if the state could not be read.
    #[inline(always)]
    pub fn of(
        memory: &mut impl Memory,
        layout: &'l Layout,
        state: u64,
        most: usize,
    ) -> Option<Frames<'l>> {
        let (first, second) = layout.frame;
        let mut next = memory.u64(state.wrapping_add(first))?;
        if let Some(second) = second {
            next = memory.u64(next.wrapping_add(second))?;
        }
        let (flag, first_own, first_entry) = match (layout.owner, layout.is_entry) {
            (Some(owner), _) => (owner, FIRST_OWN, 256),
            (None, Some(is_entry)) => (is_entry, 256, 1),
            // Up to 3.10, each Python frame is a call of the evaluation loop of its own.
            (None, None) => (layout.code, 256, 0),
        };
        let fields = [layout.code, layout.previous, layout.instruction, flag].map(|at| at & !7);
        if fields.iter().any(|at| *at >= OBJECT) {
            return None;
        }
        Some(Frames {
            layout,
            fields,
            flag,
            first_own,
            first_entry,
            next,
            held: None,
            left: most,
            own_in_a_row: 0,
            ends: None,
        })
    }

    /// The next frame; `None` at the end.
    #[inline(always)]
    pub fn next(&mut self, memory: &mut impl Memory) -> Option<RawFrame> {
        while self.ends.is_none() {
            if self.next == 0 {
                return self.end(WalkEnd::Whole, true);
            }
            let Some((raw, own, previous)) = self.one(memory, self.next) else {
                return self.end(WalkEnd::Unreadable, false);
            };
            self.next = previous;
            if own {
                // The interpreter's own frame marks where its evaluation loop was called, so the
                // frame inside it is the outermost one of that call.
                if let Some(held) = &mut self.held {
                    held.entry = 1;
                }
                self.own_in_a_row += 1;
                if self.own_in_a_row > MAX_OWN_IN_A_ROW && previous != 0 {
                    return self.end(WalkEnd::Unreadable, true);
                }
                continue;
            }
            self.own_in_a_row = 0;
            if self.left == 0 {
                return self.end(WalkEnd::TooDeep, false);
            }
            self.left -= 1;
            if let Some(held) = self.held.replace(raw) {
                return Some(held);
            }
        }
        None
    }

    /// Reads a frame. Returns the frame, whether it is the interpreter's own, and its caller's
    /// address.
    #[inline(always)]
    fn one(&self, memory: &mut impl Memory, frame: u64) -> Option<(RawFrame, bool, u64)> {
        let layout = self.layout;
        let [code, previous, instruction, flag] = memory.fields(frame, self.fields)?;
        let flag = u16::from(u8_in(flag, self.flag));
        let own = flag >= self.first_own;
        // From 3.14 on, the low bits of a reference are a tag.
        let code = code & !7;
        let instruction = match (layout.instruction_is, layout.copies) {
            (Instruction::Offset(_), _) => u64::from(u32_in(instruction, layout.instruction)),
            (Instruction::Address, Some(copies)) if !own => {
                in_code(memory, layout, copies, frame, code, instruction)?
            }
            (Instruction::Address, _) => instruction,
        };
        let entry = u64::from(flag >= self.first_entry);
        Some((RawFrame { at: frame, code, instruction, entry }, own, previous))
    }

    /// How the walk ended; meaningful once [`Frames::next`] has returned `None`.
    pub fn ends(&self) -> WalkEnd {
        self.ends.unwrap_or(WalkEnd::Unreadable)
    }

    #[inline(always)]
    fn end(&mut self, ends: WalkEnd, is_entry: bool) -> Option<RawFrame> {
        self.ends = Some(ends);
        let held = self.held.take()?;
        Some(RawFrame { entry: held.entry | u64::from(is_entry), ..held })
    }
}

/// Translates the address of an instruction in a thread's own copy of a function's instructions to
/// the address in the code object.
fn in_code(
    memory: &mut impl Memory,
    layout: &Layout,
    (number, list): (u64, u64),
    frame: u64,
    code: u64,
    instruction: u64,
) -> Option<u64> {
    let number = u64::from(memory.u32(frame.wrapping_add(number))?);
    // Copy 0 is the code object's own instructions. The list of copies begins with its length.
    if number == 0 {
        return Some(instruction);
    }
    let list = memory.u64(code.wrapping_add(list))?;
    let copy = memory.u64(list.wrapping_add(8 + 8 * number))?;
    Some(instruction.wrapping_sub(copy).wrapping_add(code).wrapping_add(layout.instructions))
}
