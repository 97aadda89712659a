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
    /// A pickle that is damaged, or no memory snapshot of PyTorch.
    #[error("`{}` cannot be read as a memory snapshot: {why}{}", path.display(), at(*offset))]
    NotASnapshot {
        /// Which file.
        path: PathBuf,
        /// Where, in bytes of the decompressed pickle; none if its content is something else.
        offset: Option<u64>,
        /// What is there.
        why: String,
        /// Whether the file ends too early.
        is_cut: bool,
    },
    /// Something that can be read only once, as a pipe, has times that only a second look tells.
    #[error("`{}` has times that cannot be, and can be read only once", path.display())]
    NotTwice {
        /// Which file.
        path: PathBuf,
    },
    /// More than was allowed.
    #[error("`{}` holds more than {limit} bytes, decompressed", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// What was allowed.
        limit: u64,
    },
    /// No file to import.
    #[error("`{}` holds no Chrome or Kineto trace (JSON), no memory snapshot (*.pickle) and no log of torch.compile (TORCH_TRACE)", path.display())]
    NoTraces {
        /// Which directory.
        path: PathBuf,
        /// Directories in it that hold some.
        within: Vec<PathBuf>,
        /// Files in it that cannot be read, and why.
        unread: Vec<String>,
    },
    /// The run could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

fn at(offset: Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(", at byte {offset}"))
}
