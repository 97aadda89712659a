//! Converts addresses to functions, source files and lines.
//!
//! The sources of names, best first: the module's own `.debug_info`, a separate debug file (by
//! build id under `/usr/lib/debug`, or by `.gnu_debuglink`), `.symtab`, `.dynsym`. A symbol names
//! an address only if the address is within the symbol's size. An unknown address gets no name,
//! because a wrong name is worse than none.
//!
//! Memory is limited regardless of the number of modules. If open modules exceed `MAX_MAPPED` bytes
//! of mapped debug information, `MAX_HEAP` estimated bytes of memory, or `MAX_OPEN` in number,
//! those that were not used for longest are closed. Callers should resolve addresses in order of
//! module and address, because then each part is read once.
//!
//! The modules in reading order; each uses only those above it:
//!
//! - [`elf`]: reads ELF files, and tells which programs can't be recorded;
//! - [`disk_cache`]: stores results that take long to compute on disk for later runs;
//! - `demangle`, `frame`, `module_file`: a file to be read, and what an address in it is named;
//! - `files`, `table`, `allocators`, `dwarf`: the symbols and the debug information of a file;
//! - `kallsyms`, `kernel_image`, `kernel`, `places`: the kernel's functions, and addresses that an
//!   earlier run named;
//! - `cubin`: lines of GPU code;
//! - `symbolizer`: names addresses by all of these.

pub mod elf;

pub mod disk_cache;

mod demangle;
mod frame;
mod module_file;

mod allocators;
mod cubin;
mod dwarf;
mod files;
mod table;

mod kallsyms;
mod kernel;
mod kernel_image;
mod places;

mod symbolizer;

pub use allocators::Allocators;
pub use cubin::CubinLines;
pub use demangle::demangle;
pub use frame::ResolvedFrame;
pub use kernel::{KERNEL, module as kernel, some_function as some_kernel_function};
pub use module_file::ModuleFile;
pub use symbolizer::Symbolizer;
pub use table::{SymbolTable, routine, variable};
