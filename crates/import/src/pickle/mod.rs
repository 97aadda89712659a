//! Reads Python pickles, the format of PyTorch's memory snapshots.
//!
//! Only values are read: numbers, texts, lists, tuples and dictionaries. Opcodes that make Python
//! import or call something (GLOBAL, REDUCE, BUILD and the like) are refused by name, so a hostile
//! pickle can't run code. Values are in an arena and refer to each other by number. A real file has
//! 768,000 references to 20,790 objects, so copying the targets would cost too much. The length of
//! the input bounds memory, and nothing recurses.

mod error;
mod machine;
mod opcodes;
mod values;

pub(crate) use error::PickleError;
pub(crate) use machine::{is_pickle, read};
pub(crate) use values::{Arena, Value};
