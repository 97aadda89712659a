//! Compiles a module's call frame information into the unwind rows that targets and the sampler
//! read.
//!
//! A row must never lead to a wrong caller. Some entries can't be expressed exactly as rows: those
//! with another CFA register, a DWARF expression, a frame pointer in another register, or a return
//! address elsewhere. Such an entry becomes `Row::NONE`, which ends the stack there and marks it as
//! cut. A row with the right CFA but without the frame pointer would look right until a caller
//! needs the frame pointer, so it becomes `Row::NONE` too.

mod cached_rows;
mod fde_rows;
mod from_module;
mod parts;
mod plain;
mod search;
mod table;

pub use cached_rows::{CachedRows, RowSpan, SpanRows};
pub(crate) use from_module::compile_section;
pub use from_module::{compile, compile_bytes, compile_elf, compile_file, frame_bytes};
pub use parts::{ModulePart, compile_part, parts};
pub(crate) use search::{SearchTable, Window};
pub use table::{UnwindError, UnwindTable, encode};
