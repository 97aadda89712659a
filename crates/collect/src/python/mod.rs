//! CPython's frames. They are read from outside, from the memory of a process that is not stopped
//! for it, or the process records them itself with the stacks of its allocations.
//!
//! From outside, frames are read just after a sample interrupted the thread, or while the thread
//! waits. If anything changed meanwhile, the frames do not fit together; such a reading ends early
//! and is marked as cut. CPython 3.8 to 3.14 on 64-bit machines are supported. Debug builds before
//! 3.13 have other object layouts and are refused.

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
mod sent;
mod stack;

pub use find::{FoundPython, find, may_be};
pub use function::PyFunction;
pub use merge::merge;
pub use pythons::{PyStack, PyThreadName, PythonProcesses};
pub use sent::{SentFrame, SentNames, write as write_name};
