//! Options of `tprof export`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `tprof export`.
#[derive(Args, Debug, Clone, Default)]
pub struct ExportArgs {
    /// Run directory, or one of its files
    #[arg(value_name = "RUN", value_hint = clap::ValueHint::AnyPath)]
    pub path: PathBuf,
    /// Format, see below
    #[arg(long, value_name = "FORMAT")]
    pub to: String,
    /// File or directory to write, - for stdout [default: beside the run's files]
    #[arg(short, long, value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    pub output: Option<PathBuf>,
    /// Replace existing files
    #[arg(long)]
    pub force: bool,
    /// With folded: what a stack's number counts [default: cpu, if it was sampled;
    /// else bytes]
    #[arg(long, value_enum)]
    pub weight: Option<Weight>,
    /// Which part.
    #[command(flatten)]
    pub slice: SliceArgs,
    /// With flame: show what changed since this run
    #[arg(long, value_name = "RUN", value_hint = clap::ValueHint::AnyPath)]
    pub against: Option<PathBuf>,
    /// With flame: write the trees of the page as JSON, flame.json
    #[arg(long)]
    pub json: bool,
    /// Stop a file at this size, and say so: perfetto, chrome, tensorboard, timeline
    #[arg(long, value_name = "SIZE")]
    pub max_size: Option<String>,
}

/// Which part of a run.
#[derive(Args, Debug, Clone, Default)]
pub struct SliceArgs {
    /// Only these ranks
    #[arg(long, value_name = "LIST")]
    pub rank: Option<String>,
    /// Only these training steps
    #[arg(long, value_name = "LIST")]
    pub steps: Option<String>,
    /// Only what touches the time from here on
    #[arg(long, value_name = "TIME")]
    pub from_time: Option<String>,
    /// … and before this
    #[arg(long, value_name = "TIME")]
    pub to_time: Option<String>,
}

/// What the number behind a folded stack is.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Allocated bytes
    Bytes,
    /// Number of allocations
    Count,
    /// Nanoseconds on a core
    Cpu,
    /// Nanoseconds off a core
    Wait,
}
