//! Code and stacks: mappings, frames, and the functions at addresses.

use super::ids::{NameId, ProcessIndex, StackId};

/// An executable mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// Index of the process.
    pub process: ProcessIndex,
    /// First address of the mapping.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Address minus the module's own (ELF) address.
    pub bias: u64,
    /// Path; only the base name under `--redact`.
    pub path: NameId,
    /// Build id in hex; empty if it has none.
    pub build_id: NameId,
    /// Time when the mapping was recorded.
    pub time_ns: u64,
}

/// Set in a frame that is no address: a function of an interpreter, of the
/// kernel, or of an imported call stack. The low 32 bits are a number of the
/// process's own; its row in the symbols table describes it. Addresses in
/// user space lie below on every machine.
pub const SYNTHETIC_FRAME: u64 = 1 << 56;

/// A call stack: return addresses or [`SYNTHETIC_FRAME`]s, innermost first.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// Index of the process.
    pub process: ProcessIndex,
    /// Id of the stack in that process.
    pub stack: StackId,
    /// Why it ends: [`tprof_wire::record::StackEnd`] as a number; 0 is whole.
    pub end: u8,
    /// Return addresses, with the generation of their code in the high bits.
    pub frames: Vec<u64>,
}

/// The meaning of an address: the function that contains it, and those inlined there.
#[derive(Clone, Debug, PartialEq)]
pub struct Symbol {
    /// The process of the address.
    pub process: ProcessIndex,
    /// The return address, as in [`Stack::frames`].
    pub address: u64,
    /// 0 for the innermost inlined function, rising outwards; the function proper is last.
    pub depth: u16,
    /// Demangled name; empty if unknown.
    pub function: NameId,
    /// Source file; empty if unknown.
    pub file: NameId,
    /// Source line; 0 if unknown.
    pub line: u32,
    /// Path of the module; empty if unknown.
    pub module: NameId,
}
