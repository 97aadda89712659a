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

mod allocators;
pub(crate) mod demangle;
mod dwarf;
mod files;
mod frame;
mod kallsyms;
mod kernel;
mod kernel_image;
mod module_file;
mod places;
mod symbolizer;
mod table;

pub use allocators::Allocators;
pub use frame::ResolvedFrame;
pub use kernel::{KERNEL, module as kernel, some_function as some_kernel_function};
pub use module_file::ModuleFile;
pub use symbolizer::Symbolizer;
pub(crate) use table::{SymbolTable, routine, variable};
