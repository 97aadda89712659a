//! Compiles a module's call frame information into the unwind rows that targets read.
//!
//! Rows must never lead to a wrong caller. If the wire's rows can't express an entry exactly
//! (another CFA register, a DWARF expression, a frame pointer kept in a register, a return address
//! elsewhere), it becomes `Row::NONE` of the wire, which cuts the stack there and marks it. A row
//! that has the CFA but loses the frame pointer would look right until some caller needs the frame
//! pointer, so it is cut as well.

mod compile;
mod compiler;
mod parts;
mod plain;
mod search;
mod table;

pub(crate) use compile::compile_section;
pub use compile::{compile, compile_bytes, compile_elf, compile_file, frame_bytes};
pub use parts::{ModulePart, compile_part, parts};
pub(crate) use search::{SearchTable, Window};
pub use table::{UnwindError, UnwindTable, encode};
