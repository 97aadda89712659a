//! Defines rows for code and stacks: mappings, frames, and the functions at their addresses.

use super::ids::{NameId, ProcessIndex, StackId};

/// An executable mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// Index of the process.
    pub process: ProcessIndex,
    /// First address of the mapping.
    pub start: u64,
    /// One past the last address of the mapping.
    pub end: u64,
    /// Offset between addresses in the process and the module's own (ELF) addresses.
    pub bias: u64,
    /// Path of the file; only the base name under `--redact`.
    pub path: NameId,
    /// Build id in hex; empty if the file has none.
    pub build_id: NameId,
    /// Time when the mapping was recorded.
    pub time_ns: u64,
}

/// This bit is set in a frame that isn't an address: a function of an interpreter, of the operating
/// system's kernel, or of an imported call stack. The low 32 bits are a number that the process
/// assigned, and the symbols table has the function under that number. No address in user space has
/// this bit on any machine.
pub const SYNTHETIC_FRAME: u64 = 1 << 56;

/// A call stack: return addresses or [`SYNTHETIC_FRAME`]s, innermost first.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// Index of the process.
    pub process: ProcessIndex,
    /// Id of the stack in that process.
    pub stack: StackId,
    /// Reason why the stack ends: [`tprof_wire::record::StackEnd`] as a number; 0 means that it is
    /// whole.
    pub end: u8,
    /// Return addresses, with the generation of their code in the high bits; innermost first.
    pub frames: Vec<u64>,
}

/// One function at an address: the function that contains it, or one that is inlined there.
#[derive(Clone, Debug, PartialEq)]
pub struct Symbol {
    /// The process that the address belongs to.
    pub process: ProcessIndex,
    /// The return address, as in [`Stack::frames`].
    pub address: u64,
    /// 0 for the innermost inlined function, rising outwards. The function that contains the
    /// address is last.
    pub depth: u16,
    /// Demangled name of the function; empty if unknown.
    pub function: NameId,
    /// Source file; empty if unknown.
    pub file: NameId,
    /// Source line; 0 if unknown.
    pub line: u32,
    /// Path of the module; empty if unknown.
    pub module: NameId,
}
