//! Errors that prevent a run, or that occur at its end.

use std::io;
use std::path::PathBuf;

impl CollectError {
    /// Whether the error is that the directory already contains a run.
    pub fn is_run(&self) -> bool {
        matches!(
            self,
            CollectError::RunExists(_)
                | CollectError::OtherJob { .. }
                | CollectError::RunIsLive { .. }
        )
    }
}

/// Errors of the collector, with messages for users.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The run directory already contains a run.
    #[error("`{0}` already holds a run")]
    RunExists(PathBuf),
    /// The run directory contains a run, and this rank isn't known to belong to the same job.
    #[error("`{path}` already holds a run of another job")]
    OtherJob {
        /// The run directory.
        path: PathBuf,
        /// Whether both runs name their jobs, so that these are known to differ. If not, the run is
        /// over, and nothing shows to which job it belongs.
        known: bool,
    },
    /// The run directory contains a run that is still being recorded.
    #[error("`{path}` holds a live run: process {pid} is recording it")]
    RunIsLive {
        /// The run directory.
        path: PathBuf,
        /// Pid of its collector.
        pid: u32,
    },
    /// The path of the run directory exists and isn't a directory.
    #[error("`{0}` exists and is not a directory")]
    NotADirectory(PathBuf),
    /// A file or directory can't be created or written.
    #[error("cannot write `{path}`: {source}")]
    Unwritable {
        /// The path that was written.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The session directory can't be created.
    #[error("cannot make a session directory in {tried}: {source}")]
    NoSession {
        /// The places that were tried.
        tried: String,
        /// The error at the last place.
        source: io::Error,
    },
    /// A system call failed that tprof can't work without.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// No collector of a live run answered.
    #[error("{0}")]
    NotLive(String),
    /// A trace file could not be written.
    #[error(transparent)]
    Trace(#[from] tprof_trace::TraceError),
}
