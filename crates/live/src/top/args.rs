//! Options of `tprof top`.

use std::ffi::OsString;
use std::path::PathBuf;

/// Options of `tprof top`.
#[derive(Clone, Debug, Default)]
pub struct TopArgs {
    /// Run directory or trace file; `HOST:RUN` for a run on another host, by ssh.
    pub run: Option<OsString>,
    /// Whether to print one snapshot and exit.
    pub once: bool,
    /// Whether to print a snapshot per second as a line of JSON, until the run ends.
    pub json: bool,
    /// Path of tprof.
    pub program: PathBuf,
}
