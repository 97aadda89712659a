//! Compiles call frame information (`.eh_frame`) for x86-64 into unwind rows of `tprof-wire`, in
//! the forms that compilers write.
//!
//! It tracks only the three registers that rows describe. It refuses forms that compilers do not
//! write, and never guesses. Then the collector uses a general evaluator, and the injected library
//! leaves the address to the collector.
//!
//! Both the collector and the injected library use this crate. The collector compiles whole modules
//! into tables. A process for which there is no table yet runs the description of one function, in
//! the memory that its loader has mapped ([`LoadedFrames`]). Nothing here allocates, and all reads
//! are within the slices that the caller passes.
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
