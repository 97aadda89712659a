//! The errors that prevent a report.

use std::path::PathBuf;

use tprof_document::OptionMatches;
use tprof_trace::TraceError;

/// The reason why a report cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum AnalyzeError {
    /// The run, or its only file, cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The run has no such rank.
    #[error("there is no rank {rank} in `{}`", path.display())]
    NoRank {
        /// The rank that was requested.
        rank: u32,
        /// Path of the file or directory.
        path: PathBuf,
        /// The ranks of the run.
        available: Vec<u32>,
    },
    /// The run has no such cycle.
    #[error("the run has no cycle {cycle}")]
    NoCycle {
        /// The cycle that was requested.
        cycle: u32,
        /// The cycles of the run, in words.
        available: Vec<String>,
    },
    /// An option names something that the run does not have.
    #[error("{} `{}` chooses none of the run's {}", .0.option, .0.text, .0.what)]
    Nothing(OptionMatches),
}
