//! Turns addresses into functions, files and lines.
//!
//! Sources, best first: the module's own `.debug_info`, a separate debug file
//! (by build id under `/usr/lib/debug`, or by `.gnu_debuglink`), `.symtab`,
//! `.dynsym`. A symbol names an address only if it covers it. An unknown
//! address stays unnamed: a wrong name is worse than none.
//!
//! Memory stays bounded however many modules are asked about: open modules are
//! closed, least recently used first, past `MAX_MAPPED` bytes of mapped debug
//! information, `MAX_HEAP` estimated bytes of memory or `MAX_OPEN` modules.
//! Asking in order of module, then address, reads each part once.

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
