//! Finds the files that processes run code from, and compiles an unwind table for each.
//!
//! Tables are shared: if ten thousand processes map the same libc, its table is compiled once. A
//! file is identified by device, inode, size and modification time, so a rebuilt library gets a new
//! table. Files are opened through `/proc/PID`, as the process sees them, because the process may
//! be in a container. A path as the collector sees it is used only if it leads to the mapped inode.
//!
//! Any thread may compile a table: [`ModuleCache::job`] returns a job, and [`ModuleCache::publish`]
//! stores the job's result.

mod address_spaces;
mod cache;
mod files;
mod rows;

pub use address_spaces::{AddressSpaces, ModuleLoad};
pub use cache::{
    CompileJob, Compiled, FileKey, FreshRows, LoadedModule, ModuleCache, TableId, TableState,
    TableStore,
};

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
