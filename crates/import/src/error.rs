//! Why a trace could not be imported.

use std::io;
use std::path::PathBuf;
use tprof_trace::TraceError;

/// Why nothing came of an import. What is wrong with single events is no error:
/// they are counted, and noted in the run.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The operating system refused.
    #[error("cannot {what} `{}`: {source}", path.display())]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Something else than a trace.
    #[error("`{}` is not a Chrome or Kineto trace: {why}, at byte {offset}", path.display())]
    NotATrace {
        /// Which file.
        path: PathBuf,
        /// Where it stops being one, in bytes of the JSON.
        offset: u64,
        /// What is there.
        why: String,
    },
    /// More than was allowed.
    #[error("`{}` holds more than {limit} bytes of JSON", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// What was allowed.
        limit: u64,
    },
    /// No file to import.
    #[error("`{}` holds no Chrome or Kineto trace (*.json or *.json.gz)", path.display())]
    NoTraces {
        /// Which directory.
        path: PathBuf,
        /// Directories in it that hold some.
        within: Vec<PathBuf>,
    },
    /// The run could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}
