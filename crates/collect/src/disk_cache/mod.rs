//! Caches for later runs what takes long to compute: unwind tables and sorted symbols of large
//! files, and the debug information of addresses that were named.
//!
//! Compiling the tables for the stacks of `import torch` takes 70 ms of processor time and makes
//! the job wait a dozen times; sorting the symbols of its libraries takes 40 ms. Both follow from
//! the file alone, so they are stored in a directory of the user's, by build id, size and time of
//! change of the file, and by the program that computed them.
//!
//! What must stay true: nothing is used that another user could have written, or that is incomplete
//! on the disk. If the directory is absent, full, read-only or not the user's own, a run only loses
//! the time that the cache would have saved. Cache files hold the names of the kernel's functions
//! and, for symbolized addresses, function and source names; they hold no other names or paths.

mod directory;
mod file;
mod key;
mod rows;

pub use directory::{CachedContent, DiskCache};
pub use key::{FileKind, LibraryKey};
pub use rows::{CachedRows, RowSpan, SpanRows};

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
