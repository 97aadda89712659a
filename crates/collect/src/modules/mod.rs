//! The files that a process runs code from, and the unwind table of each.
//!
//! Tables are shared: for ten thousand processes that map the same libc, it is compiled once. A
//! file is identified by device, inode, size and modification time, so a rebuilt library gets a new
//! table. Files are opened through `/proc/PID`, as the process sees them, so that containers work.
//! A path in the collector's own view is used only if it leads to the mapped inode.
//!
//! Compilation may run on another thread: [`ModuleCache::job`] returns a job, and
//! [`ModuleCache::publish`] takes its result.

mod address_spaces;
mod cache;
mod files;
mod rows;

pub use crate::elf::FileId;
pub use crate::os::maps::{Mapping, parse_maps, read_code_maps, read_maps};
pub use address_spaces::{AddressSpaces, ModuleLoad};
pub use cache::{
    CompileJob, Compiled, FileKey, FreshRows, LoadedModule, ModuleCache, TableId, TableState,
    TableStore,
};
