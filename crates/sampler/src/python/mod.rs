//! Reads CPython's frames. The sampler reads them from the memory of a process without stopping it.
//! For stacks of allocations, the process records its frames itself.
//!
//! The sampler reads frames just after a sample interrupted the thread, or while the thread waits.
//! If the thread changes its frames meanwhile, they don't fit together, so the reading ends early
//! and is marked as cut. CPython 3.8 to 3.14 on 64-bit machines are supported. Debug builds before
//! 3.13 are refused, because their objects differ.

mod code;
mod find;
mod function;
mod layout;
mod memory;
mod merge;
mod names;
mod naming;
mod objects;
mod pythons;
mod remote_stack;
mod sent;

pub use find::{FoundPython, find, may_be};
pub use function::PyFunction;
pub use merge::merge;
pub(crate) use pythons::{PyStack, PyThreadName, PythonProcesses};
pub use sent::{SentFrame, SentNames, write as write_name};
