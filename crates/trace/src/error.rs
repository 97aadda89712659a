//! Errors about a trace as a whole, and problems inside it.
//!
//! A [`TraceError`] means that nothing can be read (or written); a [`Problem`] is a part that could
//! not be read while the rest can.

use std::io;
use std::path::PathBuf;

/// Why a trace could not be written or opened.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system refused.
    #[error("cannot {what} `{}`: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operation that failed: `create`, `open`, `read`, `write`, …
        what: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// No bytes at all.
    #[error("`{}` is empty: recording ended before its first write", path.display())]
    Empty {
        /// The empty file.
        path: PathBuf,
    },
    /// The file is something else.
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
    /// A later format.
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
    /// A format that is no longer read.
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
    /// The same format, with something in it that is unknown to this build.
    #[error("`{}` needs features {bits:#x}, which this tprof (format {newest}) does not know", path.display())]
    Features {
        /// Path of the file.
        path: PathBuf,
        /// The unknown bits.
        bits: u64,
        /// Newest format that this build reads.
        newest: u16,
    },
    /// A path with no run behind it.
    #[error("`{}` is not a tprof run: {why}", path.display())]
    NoRun {
        /// The path that was given.
        path: PathBuf,
        /// What is there instead.
        why: String,
    },
}

/// A part of a file or a run that could not be read; the rest can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Description of the problem, a sentence.
    pub what: String,
}

/// Why a block could not be decoded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Damage(pub String);

impl Damage {
    /// Damage described by a sentence.
    pub fn new(what: impl Into<String>) -> Damage {
        Damage(what.into())
    }
}
