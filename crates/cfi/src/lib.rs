//! Compiles call frame information (`.eh_frame`), as compilers write it for x86-64, into unwind
//! rows of `tprof-wire`.
//!
//! Only the three registers that rows describe are tracked. Forms that compilers do not write are
//! refused and never guessed: the collector then uses a general evaluator, and the injected library
//! leaves the address to the collector.
//!
//! Both use this crate. The collector compiles whole modules into tables. A process that has no
//! table yet runs the description of one function, from the memory that its loader has mapped
//! ([`LoadedFrames`]). Nothing here allocates, and all reads are within the slices that are passed.
//!
//! Sources: DWARF 5, 6.4; Linux Standard Base 5.0, chapters 10.6 (`.eh_frame`, `.eh_frame_hdr`).
#![no_std]

mod input;
mod state;

mod shared;

mod description;

mod loaded;

pub use description::{CfiEntry, code_at, entry_at, run};
pub use loaded::{ENTRY_BYTES, LoadedFrames};
pub use shared::SharedEntry;
