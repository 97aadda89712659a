//! Errors about a trace as a whole, and problems inside it.
//!
//! A [`TraceError`] means that nothing can be read (or written). A [`Problem`] is one part that
//! couldn't be read while the rest can.

use std::io;
use std::path::PathBuf;

/// The reason why a trace couldn't be written or opened.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system reported an error.
    #[error("cannot {what} `{}`: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operation that failed: `create`, `open`, `read`, `write`, …
        what: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file is empty.
    #[error("`{}` is empty: recording ended before its first write", path.display())]
    Empty {
        /// The empty file.
        path: PathBuf,
    },
    /// The file isn't a tprof file.
    #[error("`{}` is not a tprof file: it does not begin with tprof's mark", path.display())]
    NotTprof {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file ends before its first block.
    #[error("`{}` was cut off within its header, so nothing in it can be read", path.display())]
    CutOff {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file has a newer format that this build can't read.
    #[error(
        "`{}` was written by format {written} and needs a reader of format {needed}; this tprof reads {oldest} to {newest}",
        path.display()
    )]
    Newer {
        /// Path of the file.
        path: PathBuf,
        /// Format of the file.
        written: u16,
        /// Least format that a reader must know.
        needed: u16,
        /// Oldest format that this build reads.
        oldest: u16,
        /// Newest format that this build reads.
        newest: u16,
    },
    /// The file has an old format that this build no longer reads.
    #[error("`{}` was written by format {written}; this tprof reads {oldest} to {newest}", path.display())]
    Older {
        /// Path of the file.
        path: PathBuf,
        /// Format of the file.
        written: u16,
        /// Oldest format that this build reads.
        oldest: u16,
        /// Newest format that this build reads.
        newest: u16,
    },
    /// The format is known, but the file uses a feature that this build doesn't know.
    #[error("`{}` needs features {bits:#x}, which this tprof (format {newest}) does not know", path.display())]
    Features {
        /// Path of the file.
        path: PathBuf,
        /// The unknown bits.
        bits: u64,
        /// Newest format that this build reads.
        newest: u16,
    },
    /// The path isn't a run.
    #[error("`{}` is not a tprof run: {why}", path.display())]
    NoRun {
        /// The path that the user named.
        path: PathBuf,
        /// Describes what is there instead.
        why: String,
    },
}

/// A part of a file or a run that couldn't be read; the rest can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Description of the problem, a sentence.
    pub what: String,
}

/// The reason why a block couldn't be decoded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Damage(pub String);

impl Damage {
    /// Creates damage that this sentence describes.
    pub fn new(what: impl Into<String>) -> Damage {
        Damage(what.into())
    }
}
