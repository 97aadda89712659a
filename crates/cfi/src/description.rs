//! Reads the entries of `.eh_frame`, and runs the descriptions of functions (FDEs).

use crate::input::Input;
use crate::shared::SharedEntry;
use core::ops::ControlFlow;
use tprof_wire::unwind::Row;

/// Maximum depth of states that are remembered (`DW_CFA_remember_state`). Compilers use one or two.
const MAX_REMEMBERED: usize = 8;

/// An entry of `.eh_frame`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CfiEntry {
    /// A part that the descriptions of several functions share (a CIE).
    Shared,
    /// The description of a function (an FDE), with the offset of the shared entry that it refers
    /// to.
    Description(usize),
}

/// Returns the entry at an offset in the section, and the offset of the next one. Returns `None` if
/// the entry isn't within the section, or has an extended length, which does not occur in practice.
pub fn entry_at(section: &[u8], at: usize) -> Option<(CfiEntry, usize)> {
    let mut input = Input::new(section.get(at..)?);
    let length = input.u32()?;
    let next = at.checked_add(4)?.checked_add(length as usize)?;
    // A length of all ones means that a 64-bit length follows, and 0 marks the end of the section.
    if length == u32::MAX || length < 4 || next > section.len() {
        return None;
    }
    let pointer = input.u32()? as usize;
    match pointer {
        0 => Some((CfiEntry::Shared, next)),
        _ => Some((CfiEntry::Description((at + 4).checked_sub(pointer)?), next)),
    }
}

/// The addresses where the described code begins and ends, in a description with 32-bit addresses.
/// `place` is the address of the description itself.
pub fn code_at(description: &[u8], place: u64) -> Option<(u64, u64)> {
    code(&mut Input::new(description.get(8..)?), place)
}

fn code(input: &mut Input<'_>, place: u64) -> Option<(u64, u64)> {
    let place = place.checked_add(8)?;
    let start = place.wrapping_add_signed(i64::from(input.u32()?.cast_signed()));
    let length = u64::try_from(input.u32()?.cast_signed()).ok()?;
    Some((start, start.checked_add(length)?))
}

/// Runs a description, whose first bytes are its length. Calls `each` with every row, and with the
/// address from which the row is valid. A row is valid up to the next row's address, and the last
/// one up to the end of the code. Returns `None` if the description has a form that compilers don't
/// write. Rows that `each` got before that are valid.
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
