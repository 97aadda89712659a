//! Call frame information (`.eh_frame`) as compilers write it for x86-64, run into the wire's unwind rows.
//!
//! Of all registers only the three that rows speak of are followed. What compilers do not write is
//! refused, never guessed: the collector leaves it to a general evaluator, the injected library to
//! the collector.
//!
//! Both use it: the collector runs whole modules into tables; a process that has no table yet runs
//! the description of one function, out of what its loader has mapped ([`LoadedFrames`]). Nothing
//! here allocates, and all reads are within the slices given.
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
