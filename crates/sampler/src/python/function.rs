//! A Python function as stacks show it.

/// A Python function, and the line at which it was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PyFunction {
    /// Name of the function.
    pub function: String,
    /// Path of its file.
    pub file: String,
    /// Line at which the function was.
    pub line: u32,
}
