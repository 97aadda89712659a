//! Defines the reasons why a pickle cannot be imported as a memory snapshot.

use crate::error::ImportError;
use crate::pickle::PickleError;

/// Errors of a file that begins like a pickle.
#[derive(Debug)]
pub(crate) enum SnapshotError {
    /// The pickle is invalid.
    Pickle(PickleError),
    /// The pickle is valid but isn't a snapshot.
    Content(String),
    /// The run could not be written.
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
