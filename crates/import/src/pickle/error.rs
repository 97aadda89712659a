//! Defines the errors of reading a pickle, with their offsets.

/// Why a pickle was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub(crate) struct PickleError {
    /// Offset of the opcode, in bytes of the pickle.
    pub offset: usize,
    /// Description of what is wrong there.
    pub why: String,
    /// Whether the data ends too early.
    pub is_cut: bool,
}

impl PickleError {
    pub fn new(offset: usize, why: impl Into<String>) -> PickleError {
        PickleError { offset, why: why.into(), is_cut: false }
    }

    /// Returns the error for data that ends before or within the part that starts at an offset.
    pub fn cut(offset: usize) -> PickleError {
        PickleError { is_cut: true, ..PickleError::new(offset, "the pickle is cut off") }
    }
}
