//! CPython's frames: read from outside, out of the memory of a process that is not stopped for it,
//! or recorded by the process itself with the stacks of its allocations.
//!
//! From outside, frames are read the moment after a sample interrupted the thread, or while it
//! waits. Anything that moved meanwhile shows as frames that do not fit together; such a reading
//! ends early, with a mark. CPython 3.8 to 3.14 on 64-bit machines are supported; debug builds
//! before 3.13 lay their objects out differently and are refused.

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
