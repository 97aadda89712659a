//! Reads ELF files, and finds out which programs cannot be recorded.
//!
//! The files belong to the job: they may be hostile, truncated, or rewritten while they are read.
//! Therefore everything is read by `pread` with a limit, and never by a mapping (a truncated file
//! under a mapping causes SIGBUS). Every offset is checked, and the file alone never determines how
//! much is read.

mod exports;
mod facts;
mod file;
mod file_id;
mod stubs;
mod vdso;

pub use facts::{ElfFacts, blind_reason, inspect, own_allocator};
pub use file::{EM_AARCH64, EM_NATIVE, EM_X86_64, Elf, ElfError, Segment};
pub(crate) use file::{PT_GNU_EH_FRAME, Section, build_id_in, open, u16_at, u32_at, u64_at};
pub use file_id::FileId;
pub(crate) use stubs::called_by_stub;
pub(crate) use vdso::{VDSO, own_vdso};
