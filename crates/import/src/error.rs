//! Defines the errors of an import.

use std::io;
use std::path::PathBuf;
use tprof_trace::TraceError;

/// An error that makes an import fail. A problem with a single event is not an error: it is counted
/// and noted in the run.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The operating system reported an error.
    #[error("cannot {what} `{}`: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operation that was attempted.
        what: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is not a trace.
    #[error("`{}` is not a Chrome or Kineto trace: {why}, at byte {offset}", path.display())]
    NotATrace {
        /// Path of the file.
        path: PathBuf,
        /// Offset in bytes at which the JSON stops being a trace.
        offset: u64,
        /// Description of what is there instead.
        why: String,
    },
    /// The file is a damaged pickle, or not a memory snapshot of PyTorch.
    #[error("`{}` cannot be read as a memory snapshot: {why}{}", path.display(), at(*offset))]
    NotASnapshot {
        /// Path of the file.
        path: PathBuf,
        /// Offset in the decompressed pickle, in bytes; `None` if the pickle is valid but isn't a
        /// snapshot.
        offset: Option<u64>,
        /// Description of what is there instead.
        why: String,
        /// Whether the file ends too early.
        is_cut: bool,
    },
    /// Some timestamps are implausible, so the file must be read a second time, but it isn't a
    /// regular file (a pipe, for example).
    #[error("`{}` has impossible times, and can be read only once", path.display())]
    NotTwice {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is larger than allowed.
    #[error("`{}` holds more than {limit} bytes when it is decompressed", path.display())]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// The directory contains no file to import.
    #[error("`{}` holds no Chrome or Kineto trace (JSON), no memory snapshot (*.pickle) and no log of torch.compile (TORCH_TRACE)", path.display())]
    NoTraces {
        /// Path of the directory.
        path: PathBuf,
        /// Subdirectories that contain files to import.
        within: Vec<PathBuf>,
        /// Files in the directory that cannot be read, each with the reason.
        unread: Vec<String>,
    },
    /// The run could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// Formats the place of an error, if it is known.
fn at(offset: Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(", at byte {offset}"))
}
