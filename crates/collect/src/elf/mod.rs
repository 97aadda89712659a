//! Reads what the collector needs to know about an ELF file, and lists which
//! programs cannot be recorded.
//!
//! Files belong to the job: they may be hostile, cut short, or rewritten while
//! they are read. So everything goes through bounded `pread`s, never through a
//! mapping (a file cut under a mapping is SIGBUS), every offset is checked, and
//! no amount read follows only from the file.

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
