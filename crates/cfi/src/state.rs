//! Tracks the unwind state at one address of a function: how to find the caller's frame and
//! registers.

use crate::input::Input;
use tprof_wire::unwind::{Row, RowKind};

/// DWARF numbers of the tracked registers (System V psABI for x86-64, 3.6.2).
const RBP: u64 = 6;
const RSP: u64 = 7;
const RA: u64 = 16;

/// How the CFA is computed.
#[derive(Clone, Copy, Debug)]
enum Cfa {
    /// As the value of a register plus an offset.
    At(u64, i64),
    /// By an expression, which this crate does not evaluate.
    Expression,
}

/// Where the caller's value of a register is saved.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// The register is not mentioned, or still has the caller's value.
    Same,
    Undefined,
    /// The value is saved at the CFA plus this offset.
    Offset(i64),
    Other,
}

/// The unwind state of a function at one address.
#[derive(Clone, Copy, Debug)]
pub struct CfaState {
    cfa: Cfa,
    rbp: Rule,
    ra: Rule,
}

impl CfaState {
    /// The state before the first instruction.
    pub const BEFORE: CfaState = CfaState { cfa: Cfa::Expression, rbp: Rule::Same, ra: Rule::Same };

    /// Converts the state to an unwind row.
    pub fn row(&self) -> Row {
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

    /// Sets the rule of a register if the register is tracked.
    fn set(&mut self, register: u64, rule: Rule) {
        match register {
            RBP => self.rbp = rule,
            RA => self.ra = rule,
            _ => {}
        }
    }

    /// Sets a register's rule to the one that it has in the state `initial`.
    pub fn restore(&mut self, register: u64, initial: &CfaState) {
        match register {
            RBP => self.rbp = initial.rbp,
            RA => self.ra = initial.ra,
            _ => {}
        }
    }

    /// Executes an instruction that changes only this state; `None` for any other instruction.
    pub fn step(&mut self, op: u8, input: &mut Input<'_>, data_align: i64) -> Option<()> {
        match op {
            // nop
            0x00 => {}
            // offset
            0x80..=0xbf => {
                let rule = Rule::Offset(input.factored(data_align)?);
                self.set(u64::from(op & 0x3f), rule);
            }
            // offset_extended
            0x05 => {
                let register = input.uleb()?;
                self.set(register, Rule::Offset(input.factored(data_align)?));
            }
            // undefined
            0x07 => self.set(input.uleb()?, Rule::Undefined),
            // same_value
            0x08 => self.set(input.uleb()?, Rule::Same),
            // def_cfa
            0x0c => self.cfa = Cfa::At(input.uleb()?, input.uleb()?.cast_signed()),
            // def_cfa_register
            0x0d => {
                let Cfa::At(_, offset) = self.cfa else { return None };
                self.cfa = Cfa::At(input.uleb()?, offset);
            }
            // def_cfa_offset
            0x0e => {
                let Cfa::At(register, _) = self.cfa else { return None };
                self.cfa = Cfa::At(register, input.uleb()?.cast_signed());
            }
            // def_cfa_expression
            0x0f => {
                let length = input.uleb()?;
                input.slice(length)?;
                self.cfa = Cfa::Expression;
            }
            // expression, val_expression
            0x10 | 0x16 => {
                let (register, length) = (input.uleb()?, input.uleb()?);
                input.slice(length)?;
                self.set(register, Rule::Other);
            }
            // GNU_args_size
            0x2e => {
                input.uleb()?;
            }
            _ => return None,
        }
        Some(())
    }
}
