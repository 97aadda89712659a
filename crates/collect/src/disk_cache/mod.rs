//! What a later run need not make again: unwind tables and sorted symbols of large files, and what
//! debug information has for addresses that were named.
//!
//! Compiling what the stacks of `import torch` need takes 70 ms of processor time and has the
//! job wait a dozen times; sorting the symbols of its libraries takes 40 ms. Both follow from
//! the file alone, so they are kept in a directory of the user's, by build id, size and time of
//! change of the file, and by the program that made them.
//!
//! What must stay true: nothing is taken that another user could have written, or that does not
//! come whole from the disk; a directory that is absent, full, read-only or not the user's own
//! costs a run nothing but the time that it would have saved. Of names and paths kept files have
//! those of the kernel's functions, and of functions and source files of named addresses.

mod directory;
mod file;
mod key;
mod rows;

pub use directory::{CachedContent, DiskCache};
pub use key::{FileKind, LibraryKey};
pub use rows::{CachedRows, RowSpan, SpanRows};

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
