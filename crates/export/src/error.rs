//! Reasons why an export was not written.

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
        /// The rank that was asked for.
        rank: u64,
        /// The ranks that are there.
        there: Vec<u32>,
    },
    /// The run has no such step.
    #[error("there is no step {step}")]
    NoStep {
        /// The first step that was asked for.
        step: u64,
        /// The steps that are there.
        there: Vec<u64>,
    },
    /// The run has no such cycle.
    #[error("there is no cycle {cycle}")]
    NoCycle {
        /// The cycle that was asked for.
        cycle: u32,
        /// The cycles that are there, in words.
        there: Vec<String>,
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
    /// The slice lies within the run, but nothing happened there.
    #[error("the slice is empty")]
    EmptySlice,
    /// The limit is too small even for the frame of the format.
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
    /// Nothing that the format shows was recorded.
    #[error("nothing was recorded for {format}")]
    Nothing {
        /// Name of the format.
        format: &'static str,
        /// Kinds of data that it shows.
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
    /// Several files would be written to one name.
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
    /// The operating system refused; nothing is left under the final name.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// Path that could not be written.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}
