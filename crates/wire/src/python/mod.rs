//! CPython's frames: where its objects hold what is read, and how to read it.
//!
//! The collector finds an interpreter and publishes in the region where it is and how it lays out
//! its objects ([`Interpreter`]); the target uses that to read the frames of its own threads. The
//! collector reads other processes by the same code, through another [`Memory`].

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

/// Most Python frames of a target's stack.
pub const MAX_PYTHON_FRAMES: usize = 192;
/// Bytes of a function's name that cross; the rest is cut off.
pub const NAME_BYTES: usize = 1024;
/// Bytes of a file's path that cross: its last ones.
pub const FILE_BYTES: usize = 2048;
