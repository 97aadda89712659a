//! Why there is no report.

use std::path::PathBuf;

use tprof_trace::TraceError;

use crate::document::OptionMatches;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum AnalyzeError {
    /// The run, or its only file, cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The run has no such rank.
    #[error("there is no rank {rank} in `{}`", path.display())]
    NoRank {
        /// The rank that was asked for.
        rank: u32,
        /// Path of the file or directory.
        path: PathBuf,
        /// The ranks that are there.
        there: Vec<u32>,
    },
    /// The run has no such cycle.
    #[error("the run has no cycle {cycle}")]
    NoCycle {
        /// The cycle that was asked for.
        cycle: u32,
        /// The cycles that are there, in words.
        there: Vec<String>,
    },
    /// An option names something that the run has not.
    #[error("{} `{}` chooses none of the run's {}", .0.option, .0.text, .0.what)]
    Nothing(OptionMatches),
}
