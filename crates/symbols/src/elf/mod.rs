//! Reads ELF files, and tells which programs can't be recorded.
//!
//! The files belong to the job, so they may be hostile, truncated, or rewritten while they are
//! read. Therefore the bytes are read by `pread`, and never mapped: if a mapped file is truncated,
//! an access causes SIGBUS. Every offset is checked, and every read has a limit that doesn't come
//! from the file.

mod exports;
mod facts;
mod file;
mod file_id;
mod stubs;
mod vdso;

pub use facts::{ElfFacts, blind_reason, inspect, own_allocator};
pub use file::{
    EM_AARCH64, EM_NATIVE, EM_X86_64, Elf, ElfError, PT_GNU_EH_FRAME, Section, Segment, open,
    u32_at, u64_at,
};
pub(crate) use file::{build_id_in, u16_at};
pub use file_id::FileId;
pub(crate) use stubs::called_by_stub;
pub use vdso::{VDSO, own_vdso};
