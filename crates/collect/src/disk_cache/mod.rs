//! Caches results that take long to compute for later runs: unwind tables and sorted symbols of
//! large files, and the debug information of addresses that were symbolized.
//!
//! Compiling the tables for the stacks of `import torch` takes 70 ms of processor time and makes
//! the job wait a dozen times. Sorting the symbols of its libraries takes 40 ms. Both depend on the
//! file alone, so they are stored in a directory of the user, by build id, size and modification
//! time of the file, and by the program that computed them.
//!
//! This must stay true: no content is used that another user could have written or that is
//! incomplete on disk. If the directory is absent, full, read-only or not the user's own, a run
//! only loses the time that the cache would have saved. Cached files contain the names of the
//! kernel's functions and, for symbolized addresses, the names of functions and source files. They
//! contain no other names or paths.

mod directory;
mod file;
mod key;
mod rows;

pub use directory::{CachedContent, DiskCache};
pub use key::{FileKind, LibraryKey};
pub use rows::{CachedRows, RowSpan, SpanRows};

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
