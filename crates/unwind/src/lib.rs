//! Finds the files that processes run code from, and compiles their call frame information into the
//! unwind rows that targets and the sampler read.
//!
//! `tprof-cfi` runs call frame information in the forms that compilers write. It is a crate of its
//! own because injected code links it, and may link nothing else of this one. This crate adds all
//! other forms, whole modules, and the files that they come from.
//!
//! The modules in reading order; each uses only those above it:
//!
//! - [`unwind_table`]: compiles the unwind table of a file or of a part of it, and caches it on
//!   disk;
//! - [`modules`]: the files behind the mappings of processes, each with its table;
//! - `fuzzing`: the entry point of a fuzz target, without which none of it is compiled.

pub mod unwind_table;

pub mod modules;

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
