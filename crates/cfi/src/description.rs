//! The description of one function: an FDE.

use crate::input::Input;
use crate::shared::SharedEntry;
use core::ops::ControlFlow;
use tprof_wire::unwind::Row;

/// Depth of remembered states; compilers use one or two.
const MAX_REMEMBERED: usize = 8;

/// An entry of `.eh_frame`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CfiEntry {
    /// The part that descriptions share.
    Shared,
    /// The description of a function; the entry that it refers to is at this offset.
    Description(usize),
}

/// Returns the entry at an offset of a section, and the offset of the next one; `None` if the entry
/// has the extended form of lengths, which does not occur in practice, or is not within the
/// section.
pub fn entry_at(section: &[u8], at: usize) -> Option<(CfiEntry, usize)> {
    let mut input = Input::new(section.get(at..)?);
    let length = input.u32()?;
    let next = at.checked_add(4)?.checked_add(length as usize)?;
    // 64-bit lengths, and the end.
    if length == u32::MAX || length < 4 || next > section.len() {
        return None;
    }
    let pointer = input.u32()? as usize;
    match pointer {
        0 => Some((CfiEntry::Shared, next)),
        _ => Some((CfiEntry::Description((at + 4).checked_sub(pointer)?), next)),
    }
}

/// The code of a description with addresses of 32 bits: where it begins and ends. `place`: the address
/// of the description itself.
pub fn code_at(description: &[u8], place: u64) -> Option<(u64, u64)> {
    code(&mut Input::new(description.get(8..)?), place)
}

fn code(input: &mut Input<'_>, place: u64) -> Option<(u64, u64)> {
    let place = place.checked_add(8)?;
    let start = place.wrapping_add_signed(i64::from(input.u32()?.cast_signed()));
    let length = u64::try_from(input.u32()?.cast_signed()).ok()?;
    Some((start, start.checked_add(length)?))
}

/// Runs a description, whose length the bytes of `description` begin with. `each` is called with
/// every row and the address from which on it holds: until the next one's, the last to the end of
/// the code. `None` if the description is not as compilers write them; the rows passed before that
/// hold.
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
