//! A Python function, as stacks show it.

/// A Python function, and a line in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PyFunction {
    /// Its name.
    pub function: String,
    /// Its file.
    pub file: String,
    /// The line that it was at.
    pub line: u32,
}
