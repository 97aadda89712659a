//! Options of `tprof top`.

use clap::Args;
use std::ffi::OsString;

const AFTER: &str = "\
Keys: q quits, j and k choose a rank, m shows another number, s sorts by
another, ? lists all. Without a terminal, --once is implied.

Examples:
  tprof top r1
  tprof top gpu07:/data/runs/r1
  tprof top --json r1 | jq .stalls";

/// Arguments of `tprof top`.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER)]
pub struct TopArgs {
    /// Run directory or trace file; HOST:RUN for a run on another host, by ssh; without one, the
    /// newest run in progress here
    #[arg(value_name = "RUN", value_hint = clap::ValueHint::DirPath)]
    pub run: Option<OsString>,
    /// Print one snapshot and exit
    #[arg(long)]
    pub once: bool,
    /// Print a snapshot per second as a line of JSON, until the run ends
    #[arg(long)]
    pub json: bool,
}
