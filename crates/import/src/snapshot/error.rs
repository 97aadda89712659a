//! Why a pickle is no memory snapshot that can be imported.

use crate::error::ImportError;
use crate::pickle::PickleError;

/// What is wrong with a file that is a pickle by its first bytes.
#[derive(Debug)]
pub(crate) enum SnapshotError {
    /// The pickle itself.
    Pickle(PickleError),
    /// What the pickle holds.
    Content(String),
    /// The run.
    Import(ImportError),
}

impl From<PickleError> for SnapshotError {
    fn from(error: PickleError) -> SnapshotError {
        SnapshotError::Pickle(error)
    }
}

impl From<ImportError> for SnapshotError {
    fn from(error: ImportError) -> SnapshotError {
        SnapshotError::Import(error)
    }
}
