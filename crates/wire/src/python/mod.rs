//! Reads CPython's frames from a process's memory: the offsets of fields in CPython's objects, and
//! the code that follows them.
//!
//! The collector finds an interpreter, and publishes its addresses and the layout of its objects in
//! the region ([`Interpreter`]). With that the target reads the frames of its own threads. The
//! collector reads other processes by the same code with another [`Memory`].

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

/// Maximum number of Python frames in one stack of a target.
pub const MAX_PYTHON_FRAMES: usize = 192;
/// Maximum number of bytes of a function's name in a record. The rest is cut off.
pub const NAME_BYTES: usize = 1024;
/// Maximum number of bytes of a file's path in a record. Of a longer path only the last bytes are
/// kept.
pub const FILE_BYTES: usize = 2048;
