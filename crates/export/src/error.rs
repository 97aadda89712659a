//! Why an export was not written.

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
        /// End.
        to_ns: u64,
    },
    /// The slice lies before or after the run.
    #[error("the slice lies outside the run")]
    OutsideRun {
        /// First moment of the run, nanoseconds since it began.
        first_ns: u64,
        /// Last moment.
        last_ns: u64,
    },
    /// The slice lies within the run, and nothing happened there.
    #[error("the slice is empty")]
    EmptySlice,
    /// Not even the frame of the format fits.
    #[error("{max_bytes} bytes are too few")]
    TooSmall {
        /// Size that was asked for.
        max_bytes: u64,
        /// Least that can be asked for.
        least_bytes: u64,
    },
    /// The format cannot stop at a size.
    #[error("{format} cannot stop at a size")]
    NoMaxSize {
        /// Which.
        format: &'static str,
    },
    /// Nothing that the format shows was recorded.
    #[error("nothing was recorded for {format}")]
    Nothing {
        /// Which.
        format: &'static str,
        /// What it shows.
        wants: &'static str,
    },
    /// The run has no trace file.
    #[error("the run holds no trace file")]
    NoFile,
    /// The output is there already.
    #[error("`{}` exists", path.display())]
    Exists {
        /// Which.
        path: PathBuf,
    },
    /// Several files would be written to one name.
    #[error("{files} files cannot be written to `{}`", path.display())]
    NotADirectory {
        /// The output that was asked for.
        path: PathBuf,
        /// How many files there are.
        files: usize,
    },
    /// Several files would be written to stdout.
    #[error("{format} is several files, which do not fit stdout")]
    NotToStdout {
        /// Which format.
        format: &'static str,
    },
    /// The directory in which the output would lie is not there.
    #[error("there is no directory `{}`", directory.display())]
    NoDirectory {
        /// The output that was asked for.
        path: PathBuf,
        /// What is not there.
        directory: PathBuf,
    },
    /// The operating system refused; nothing is left under the final name.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}
