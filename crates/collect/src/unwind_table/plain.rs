//! Runs the call frame programs that compilers write, several times as fast as a general
//! evaluator: of all registers only the three that rows speak of are followed. Whatever is
//! not plain is left to gimli, and what is plain gives the rows that gimli's would.

use std::collections::HashMap;

use gimli::{
    CallFrameInstruction, CommonInformationEntry, DW_EH_PE_pcrel, DW_EH_PE_sdata4, Register, X86_64,
};
use tprof_wire::unwind::{Row, RowKind};

/// Code that one FDE describes.
#[derive(Clone, Copy)]
pub(super) struct CodeRange {
    pub start: u32,
    pub end: u32,
    /// Offset of the FDE in its section.
    pub fde: usize,
    pub debug: bool,
}

impl CodeRange {
    /// `None` for what has no place in a table. Address 0 stands for code that the linker
    /// threw away.
    pub fn new(start: u64, end: u64, fde: usize, debug: bool) -> Option<CodeRange> {
        let (start, end) = (u32::try_from(start).ok()?, u32::try_from(end).ok()?);
        (start != 0 && start < end).then_some(CodeRange { start, end, fde, debug })
    }
}

/// Depth of remembered states; compilers use one or two.
const MAX_REMEMBERED: usize = 8;
/// DWARF numbers of the registers that are followed.
const RBP: u64 = X86_64::RBP.0 as u64;
const RSP: u64 = X86_64::RSP.0 as u64;
const RA: u64 = X86_64::RA.0 as u64;

/// Where the CFA is.
#[derive(Clone, Copy)]
enum Cfa {
    At(u64, i64),
    Expression,
}

/// Where the caller's value of a register is.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// Not mentioned, or it keeps its value.
    Same,
    Undefined,
    /// Saved at the CFA plus so much.
    Offset(i64),
    Other,
}

/// What holds at one address.
#[derive(Clone, Copy)]
struct CfaState {
    cfa: Cfa,
    rbp: Rule,
    ra: Rule,
}

impl CfaState {
    /// In the wire's terms, as `translate` does for gimli's rows.
    fn row(&self) -> Row {
        match self.ra {
            Rule::Undefined => return Row::END,
            Rule::Offset(-8) => {}
            _ => return Row::NONE,
        }
        let Cfa::At(register, offset) = self.cfa else { return Row::NONE };
        let kind = match register {
            RSP => RowKind::Sp,
            RBP => RowKind::Fp,
            _ => return Row::NONE,
        };
        let saved = match self.rbp {
            Rule::Same => None,
            Rule::Offset(offset) => Some(offset),
            _ => return Row::NONE,
        };
        Row::new(kind, offset, saved).unwrap_or(Row::NONE)
    }

    fn set(&mut self, register: u64, rule: Rule) {
        match register {
            RBP => self.rbp = rule,
            RA => self.ra = rule,
            _ => {}
        }
    }
}

/// A CIE with plain FDEs.
#[derive(Clone, Copy)]
pub(super) struct PlainCie {
    code_align: u64,
    data_align: i64,
    initial: CfaState,
}

impl PlainCie {
    /// `None` unless addresses are 32-bit and relative, and its own program sets the
    /// state as every function of x86-64 begins. `instructions`: its program.
    pub fn of<R: gimli::Reader>(
        cie: &CommonInformationEntry<R>,
        mut next: impl FnMut() -> gimli::Result<Option<CallFrameInstruction<R::Offset>>>,
    ) -> Option<PlainCie> {
        let relative = gimli::DwEhPe(DW_EH_PE_pcrel.0 | DW_EH_PE_sdata4.0);
        if cie.fde_address_encoding() != Some(relative) || cie.is_signal_trampoline() {
            return None;
        }
        let data_align = cie.data_alignment_factor();
        let number = |register: Register| u64::from(register.0);
        let mut initial = CfaState { cfa: Cfa::Expression, rbp: Rule::Same, ra: Rule::Same };
        while let Some(instruction) = next().ok()? {
            match instruction {
                CallFrameInstruction::DefCfa { register, offset } => {
                    initial.cfa = Cfa::At(number(register), offset.try_into().ok()?);
                }
                CallFrameInstruction::Offset { register, factored_offset } => {
                    let offset = i64::try_from(factored_offset).ok()?.checked_mul(data_align)?;
                    initial.set(number(register), Rule::Offset(offset));
                }
                CallFrameInstruction::Nop => {}
                _ => return None,
            }
        }
        let code_align = cie.code_alignment_factor();
        Some(PlainCie { code_align, data_align, initial })
    }
}

/// A section `.eh_frame` as bytes, with its CIEs.
pub(super) struct Plain<'a> {
    bytes: &'a [u8],
    /// ELF address of its first byte.
    address: u64,
    /// Plain ones by offset, and the one asked for last: neighbouring FDEs share it.
    cies: HashMap<usize, PlainCie>,
    last: Option<(usize, PlainCie)>,
    rows: Vec<(u64, Row)>,
}

/// An entry of the section.
pub(super) enum CfiEntry {
    Cie,
    /// Of the CIE at this offset.
    Fde(usize),
}

impl<'a> Plain<'a> {
    pub fn new(bytes: &'a [u8], address: u64) -> Plain<'a> {
        Plain { bytes, address, cies: HashMap::new(), last: None, rows: Vec::new() }
    }

    /// Takes note of the CIE at an offset.
    pub fn meet(&mut self, at: usize, cie: Option<PlainCie>) {
        if let Some(cie) = cie {
            self.cies.insert(at, cie);
        }
    }

    /// The CIE at an offset, if it was met and is plain.
    pub fn cie(&mut self, at: usize) -> Option<PlainCie> {
        if self.last.is_none_or(|(last, _)| last != at) {
            self.last = Some((at, *self.cies.get(&at)?));
        }
        self.last.map(|(_, cie)| cie)
    }

    /// The entry at an offset, and where the next one is; `None` if that is not plain.
    pub fn entry(&self, at: usize) -> Option<(CfiEntry, usize)> {
        let mut input = Input { bytes: self.bytes.get(at..)? };
        let length = input.u32()?;
        let next = at.checked_add(4)?.checked_add(length as usize)?;
        // 64-bit lengths, and the end.
        if length == u32::MAX || length < 4 || next > self.bytes.len() {
            return None;
        }
        let pointer = input.u32()? as usize;
        match pointer {
            0 => Some((CfiEntry::Cie, next)),
            _ => Some((CfiEntry::Fde((at + 4).checked_sub(pointer)?), next)),
        }
    }

    /// Whether only the end of the section is left.
    pub fn is_end(&self, at: usize) -> bool {
        self.bytes.get(at..).is_some_and(|rest| rest.is_empty() || rest == [0; 4])
    }

    /// The code of an FDE: where it begins and ends.
    pub fn code(&self, fde: usize) -> Option<(u64, u64)> {
        let mut input = Input { bytes: self.bytes.get(fde + 8..)? };
        self.code_at(fde, &mut input)
    }

    fn code_at(&self, fde: usize, input: &mut Input<'_>) -> Option<(u64, u64)> {
        let place = self.address.checked_add(fde as u64 + 8)?;
        let start = place.wrapping_add_signed(i64::from(input.u32()?.cast_signed()));
        let length = u64::try_from(input.u32()?.cast_signed()).ok()?;
        Some((start, start.checked_add(length)?))
    }

    /// Runs an FDE: the rows that hold from an address on, each until the next one's, the
    /// last to the end of the FDE. `None` if it is not plain.
    pub fn run(&mut self, range: CodeRange) -> Option<&[(u64, Row)]> {
        let (CfiEntry::Fde(cie), end) = self.entry(range.fde)? else { return None };
        let cie = self.cie(cie)?;
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        let whole = self.run_into(range.fde, end, &cie, &mut rows);
        self.rows = rows;
        whole.map(|()| self.rows.as_slice())
    }

    fn run_into(
        &self,
        fde: usize,
        end: usize,
        cie: &PlainCie,
        rows: &mut Vec<(u64, Row)>,
    ) -> Option<()> {
        let mut input = Input { bytes: self.bytes.get(fde + 8..end)? };
        let (mut at, _) = self.code_at(fde, &mut input)?;
        let augmentation = input.uleb()?;
        input.skip(augmentation)?;
        let mut state = cie.initial;
        let mut remembered = [state; MAX_REMEMBERED];
        let mut depth = 0;
        while let Some(op) = input.u8() {
            let low = u64::from(op & 0x3f);
            let advance = match op >> 6 {
                1 => low,
                2 => {
                    let offset = input.factored(cie.data_align)?;
                    state.set(low, Rule::Offset(offset));
                    continue;
                }
                3 => {
                    restore(&mut state, low, cie);
                    continue;
                }
                _ => match op {
                    0x00 => continue,
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
                    _ => {
                        step(&mut state, op, &mut input, cie)?;
                        continue;
                    }
                },
            };
            rows.push((at, state.row()));
            at = at.checked_add(advance.checked_mul(cie.code_align)?)?;
        }
        rows.push((at, state.row()));
        Some(())
    }
}

/// Gives a register the rule with which functions begin.
fn restore(state: &mut CfaState, register: u64, cie: &PlainCie) {
    match register {
        RBP => state.rbp = cie.initial.rbp,
        RA => state.ra = cie.initial.ra,
        _ => {}
    }
}

/// The rarer instructions; `None` for those that gimli is to judge.
fn step(state: &mut CfaState, op: u8, input: &mut Input<'_>, cie: &PlainCie) -> Option<()> {
    let align = cie.data_align;
    match op {
        0x05 => {
            let register = input.uleb()?;
            state.set(register, Rule::Offset(input.factored(align)?));
        }
        0x06 => restore(state, input.uleb()?, cie),
        0x07 => state.set(input.uleb()?, Rule::Undefined),
        0x08 => state.set(input.uleb()?, Rule::Same),
        0x0c => state.cfa = Cfa::At(input.uleb()?, input.uleb()?.try_into().ok()?),
        0x0d => {
            let Cfa::At(_, offset) = state.cfa else { return None };
            state.cfa = Cfa::At(input.uleb()?, offset);
        }
        0x0e => {
            let Cfa::At(register, _) = state.cfa else { return None };
            state.cfa = Cfa::At(register, input.uleb()?.try_into().ok()?);
        }
        0x0f => {
            let length = input.uleb()?;
            input.skip(length)?;
            state.cfa = Cfa::Expression;
        }
        // An expression, or the value of one.
        0x10 | 0x16 => {
            let (register, length) = (input.uleb()?, input.uleb()?);
            input.skip(length)?;
            state.set(register, Rule::Other);
        }
        // GNU_args_size.
        0x2e => {
            input.uleb()?;
        }
        _ => return None,
    }
    Some(())
}

/// Bytes that are still to be read.
struct Input<'a> {
    bytes: &'a [u8],
}

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*first)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// An unsigned number of at most 63 bits.
    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn factored(&mut self, align: i64) -> Option<i64> {
        self.uleb()?.cast_signed().checked_mul(align)
    }

    fn skip(&mut self, length: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(length).ok()?..)?;
        Some(())
    }
}
