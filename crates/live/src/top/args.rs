//! Options of `tprof top`.

use clap::Args;
use std::ffi::OsString;

/// Shows what the ranks of a run do now.
#[derive(Args, Clone, Debug, Default)]
pub struct TopArgs {
    /// Run directory or trace file; HOST:RUN for a run on another host, by ssh
    #[arg(value_name = "RUN")]
    pub run: Option<OsString>,

    /// Print one snapshot and end
    #[arg(long)]
    pub once: bool,

    /// Print a snapshot a second as a line of JSON, until the run ends
    #[arg(long)]
    pub json: bool,
}
