//! Unwinds the copy of a thread's stack in a sample, using the unwind rows of the thread's code.

use crate::perf::record::Registers;
use tprof_unwind::modules::AddressSpaces;
use tprof_wire::record::StackEnd;
use tprof_wire::unwind::{Row, RowKind};

/// Largest number of frames in a sample.
pub const MAX_FRAMES: usize = 512;

/// Offsets of the saved registers from a signal frame's stack pointer.
mod saved {
    pub const FP: u64 = 120;
    pub const SP: u64 = 160;
    pub const PC: u64 = 168;
}

/// The bytes of a stack in a sample. The first is at the stack pointer.
struct StackCopy<'a> {
    base: u64,
    bytes: &'a [u8],
}

impl StackCopy<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.base)?).ok()?;
        let word = self.bytes.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    }
}

/// Pushes the frames of a sample as return addresses, innermost first. For an interrupted
/// instruction, one past the pc is pushed, because readers subtract one from a return address.
pub fn walk(
    spaces: &mut AddressSpaces,
    pid: u32,
    registers: Registers,
    stack: &[u8],
    out: &mut Vec<u64>,
) -> StackEnd {
    let copy = StackCopy { base: registers.sp, bytes: stack };
    let Registers { mut fp, mut sp, mut pc, .. } = registers;
    let most = out.len() + MAX_FRAMES;
    // 1 if `pc` is a return address, whose call is before it; 0 if `pc` was interrupted.
    let mut after_call = 0;
    loop {
        if out.len() == most {
            return StackEnd::TooDeep;
        }
        out.push(pc.wrapping_add(1 - after_call));
        let Some(row) = spaces.row_at(pid, pc.wrapping_sub(after_call)) else {
            return StackEnd::NoUnwindInfo;
        };
        let base = match row.kind() {
            kind if kind == RowKind::Sp as u64 => sp,
            kind if kind == RowKind::Fp as u64 => fp,
            kind if kind == RowKind::End as u64 => return StackEnd::Whole,
            kind if kind == RowKind::Signal as u64 => {
                let words = (
                    copy.word(sp.wrapping_add(saved::FP)),
                    copy.word(sp.wrapping_add(saved::SP)),
                    copy.word(sp.wrapping_add(saved::PC)),
                );
                let (Some(at_fp), Some(at_sp), Some(at_pc)) = words else {
                    return beyond(&copy, sp.wrapping_add(saved::PC));
                };
                (fp, sp, pc) = (at_fp, at_sp, at_pc);
                after_call = 0;
                continue;
            }
            _ => return StackEnd::NoUnwindInfo,
        };
        let cfa = base.wrapping_add_signed(row.cfa_offset());
        if cfa <= sp.wrapping_sub(8) || cfa & 7 != 0 {
            return StackEnd::OutsideStack;
        }
        if row.saves_fp() {
            match saved_fp(&copy, row, cfa) {
                Ok(saved) => fp = saved,
                Err(end) => return end,
            }
        }
        let Some(caller) = copy.word(cfa.wrapping_sub(8)) else {
            return beyond(&copy, cfa.wrapping_sub(8));
        };
        if caller == 0 {
            return StackEnd::Whole;
        }
        (sp, pc, after_call) = (cfa, caller, 1);
    }
}

fn saved_fp(copy: &StackCopy<'_>, row: Row, cfa: u64) -> Result<u64, StackEnd> {
    let at = cfa.wrapping_add_signed(row.fp_offset());
    copy.word(at).ok_or_else(|| beyond(copy, at))
}

/// Returns why a word could not be read: the copy ends before it, or the address is outside the
/// stack.
fn beyond(copy: &StackCopy<'_>, address: u64) -> StackEnd {
    const LARGEST_STACK: u64 = 1 << 30;
    let after = address.wrapping_sub(copy.base.wrapping_add(copy.bytes.len() as u64));
    if after.wrapping_add(8) < LARGEST_STACK { StackEnd::TooDeep } else { StackEnd::OutsideStack }
}
