//! CPython's frames: where its objects have the fields that are read, and how to read them.
//!
//! The collector finds an interpreter and publishes in the region where it is and how it lays out
//! its objects ([`Interpreter`]). The target uses that to read the frames of its own threads. The
//! collector reads other processes with the same code, through another [`Memory`].

mod frames;
mod layout;
mod lines;
mod memory;
mod objects;
#[cfg(test)]
mod tests;

pub use frames::{Frames, RawFrame, WalkEnd};
pub use layout::{INTERPRETER_WORDS, Instruction, Interpreter, Layout, Lines};
pub use lines::{line, offset};
pub use memory::{Memory, OBJECT, below};
pub use objects::{Chars, CodeFields, CodeHead, MAX_LINES, MAX_TEXT, Text, code, text, text_hash};

/// Maximum number of Python frames of a target's stack.
pub const MAX_PYTHON_FRAMES: usize = 192;
/// Maximum bytes of a function's name in a record. The rest is cut off.
pub const NAME_BYTES: usize = 1024;
/// Maximum bytes of a file's path in a record. Only its last bytes are kept.
pub const FILE_BYTES: usize = 2048;
