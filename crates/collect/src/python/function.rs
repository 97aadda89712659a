//! A Python function, as stacks show it.

/// A Python function, and a line in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PyFunction {
    /// Name of the function.
    pub function: String,
    /// Path of its file.
    pub file: String,
    /// The line that it was at.
    pub line: u32,
}
