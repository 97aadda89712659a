//! Defines the reasons why an export was not written.

use std::io;
use std::path::PathBuf;

use tprof_trace::TraceError;

/// Why an export was not written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The run, or a file of it, cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The run has no such rank.
    #[error("there is no rank {rank}")]
    NoRank {
        /// The requested rank.
        rank: u64,
        /// The ranks that the run has.
        available: Vec<u32>,
    },
    /// The run has no such step.
    #[error("there is no step {step}")]
    NoStep {
        /// The first requested step that is missing.
        step: u64,
        /// The steps that the run has.
        available: Vec<u64>,
    },
    /// The run has no such cycle.
    #[error("there is no cycle {cycle}")]
    NoCycle {
        /// The requested cycle.
        cycle: u32,
        /// The cycles that the run has, in words.
        available: Vec<String>,
    },
    /// The slice ends before it begins.
    #[error("the slice ends before it begins")]
    Backwards {
        /// Beginning, nanoseconds since the run began.
        from_ns: u64,
        /// End, in the same unit.
        to_ns: u64,
    },
    /// The slice lies before or after the run.
    #[error("the slice lies outside the run")]
    OutsideRun {
        /// First moment of the run, nanoseconds since it began.
        first_ns: u64,
        /// Last moment, in the same unit.
        last_ns: u64,
    },
    /// The slice lies within the run, but has none of the events that the format shows.
    #[error("the slice is empty")]
    EmptySlice,
    /// The size limit is smaller than the parts that every file of the format has.
    #[error("{max_bytes} bytes are too few")]
    TooSmall {
        /// Size that was requested, in bytes.
        max_bytes: u64,
        /// Smallest possible size, in bytes.
        least_bytes: u64,
    },
    /// The format cannot be cut at a size.
    #[error("{format} cannot stop at a size")]
    NoMaxSize {
        /// Name of the format.
        format: &'static str,
    },
    /// The run has none of the data that the format shows.
    #[error("nothing was recorded for {format}")]
    Nothing {
        /// Name of the format.
        format: &'static str,
        /// Kinds of data that the format shows.
        wants: &'static str,
    },
    /// The run has no trace file.
    #[error("the run holds no trace file")]
    NoFile,
    /// The output already exists.
    #[error("`{}` exists", path.display())]
    Exists {
        /// Path of the output.
        path: PathBuf,
    },
    /// Several files would be written under one name, which is not a directory.
    #[error("{files} files cannot be written to `{}`", path.display())]
    NotADirectory {
        /// The requested output.
        path: PathBuf,
        /// Number of files.
        files: usize,
    },
    /// Several files would be written to stdout.
    #[error("{format} is several files, which do not fit stdout")]
    NotToStdout {
        /// Name of the format.
        format: &'static str,
    },
    /// The directory that would contain the output does not exist.
    #[error("there is no directory `{}`", directory.display())]
    NoDirectory {
        /// The requested output.
        path: PathBuf,
        /// The missing directory.
        directory: PathBuf,
    },
    /// The operating system reported an error. No file exists under the final name.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// Path that could not be written.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}
