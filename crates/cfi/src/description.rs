//! Descriptions of functions (FDEs), and the entries of `.eh_frame`.

use crate::input::Input;
use crate::shared::SharedEntry;
use core::ops::ControlFlow;
use tprof_wire::unwind::Row;

/// Maximum depth of remembered states. Compilers use one or two.
const MAX_REMEMBERED: usize = 8;

/// An entry of `.eh_frame`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CfiEntry {
    /// A part that several descriptions share (a CIE).
    Shared,
    /// The description of a function (an FDE), with the offset of the shared entry that it refers
    /// to.
    Description(usize),
}

/// Returns the entry at an offset of a section, and the offset of the next one. `None` if the entry
/// has an extended length, which does not occur in practice, or is not within the section.
pub fn entry_at(section: &[u8], at: usize) -> Option<(CfiEntry, usize)> {
    let mut input = Input::new(section.get(at..)?);
    let length = input.u32()?;
    let next = at.checked_add(4)?.checked_add(length as usize)?;
    // A length of all ones announces 64 bits, and one of 0 marks the end.
    if length == u32::MAX || length < 4 || next > section.len() {
        return None;
    }
    let pointer = input.u32()? as usize;
    match pointer {
        0 => Some((CfiEntry::Shared, next)),
        _ => Some((CfiEntry::Description((at + 4).checked_sub(pointer)?), next)),
    }
}

/// Where the code of a description with 32-bit addresses begins and ends. `place` is the address of
/// the description itself.
pub fn code_at(description: &[u8], place: u64) -> Option<(u64, u64)> {
    code(&mut Input::new(description.get(8..)?), place)
}

fn code(input: &mut Input<'_>, place: u64) -> Option<(u64, u64)> {
    let place = place.checked_add(8)?;
    let start = place.wrapping_add_signed(i64::from(input.u32()?.cast_signed()));
    let length = u64::try_from(input.u32()?.cast_signed()).ok()?;
    Some((start, start.checked_add(length)?))
}

/// Runs a description; the first bytes of `description` are its length. Calls `each` with every row
/// and the address from which the row is valid: up to the next row's, or for the last row to the
/// end of the code. `None` if the description is not as compilers write them; rows that were passed
/// before that are valid.
pub fn run(
    description: &[u8],
    place: u64,
    shared: &SharedEntry,
    mut each: impl FnMut(u64, Row) -> ControlFlow<()>,
) -> Option<()> {
    let mut input = Input::new(description.get(8..)?);
    let (mut at, _) = code(&mut input, place)?;
    let augmentation = input.uleb()?;
    input.slice(augmentation)?;
    let mut state = shared.initial;
    let mut remembered = [state; MAX_REMEMBERED];
    let mut depth = 0usize;
    while let Some(op) = input.u8() {
        let low = u64::from(op & 0x3f);
        let advance = match op >> 6 {
            1 => low,
            3 => {
                state.restore(low, &shared.initial);
                continue;
            }
            _ => match op {
                0x02 => u64::from(input.u8()?),
                0x03 => u64::from(input.u16()?),
                0x04 => u64::from(input.u32()?),
                0x0a => {
                    *remembered.get_mut(depth)? = state;
                    depth += 1;
                    continue;
                }
                0x0b => {
                    depth = depth.checked_sub(1)?;
                    state = *remembered.get(depth)?;
                    continue;
                }
                0x06 => {
                    state.restore(input.uleb()?, &shared.initial);
                    continue;
                }
                _ => {
                    state.step(op, &mut input, shared.data_align)?;
                    continue;
                }
            },
        };
        if each(at, state.row()).is_break() {
            return Some(());
        }
        at = at.checked_add(advance.checked_mul(shared.code_align)?)?;
    }
    let _ = each(at, state.row());
    Some(())
}
