//! Stores results that take long to compute on disk for later runs: unwind tables and sorted
//! symbols of large files, and the debug information of symbolized addresses.
//!
//! Compiling the tables for the stacks of `import torch` takes 70 ms of processor time and makes
//! the job wait a dozen times. Sorting the symbols of its libraries takes 40 ms. Both results
//! depend only on the library's file. They are stored in a directory of the user, under the file's
//! build id, size and modification time and the program that computed them.
//!
//! Changes must keep this true: content is used only if it is complete and no other user could have
//! written it. If the directory is absent, full, read-only or not the user's own, the run is just
//! as slow as without the cache. Cached files contain the names of the kernel's functions and, for
//! symbolized addresses, the names of functions and source files. They contain no other names or
//! paths.

mod directory;
mod file;
mod key;

pub use directory::{CachedContent, DiskCache};
pub use key::{FileKind, LibraryKey};
