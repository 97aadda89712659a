//! The files that a process runs code from, and the unwind table of each.
//!
//! Tables are shared: ten thousand processes that map the same libc cost one compilation. A file is
//! identified by device, inode, size and time of change, so that a rebuilt library gets a new
//! table. Files are opened through `/proc/PID`, as the process sees them, so that containers work;
//! a path is trusted in the collector's own view only if it leads to the inode that is mapped.
//!
//! Compilation may run on another thread: [`ModuleCache::job`] returns what is to be done, and
//! [`ModuleCache::publish`] takes the result.

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
