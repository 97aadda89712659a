//! Options of `tprof export`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `tprof export`.
#[derive(Args, Debug, Clone, Default)]
pub struct ExportArgs {
    /// Run directory, or one of its files
    #[arg(value_name = "RUN", value_hint = clap::ValueHint::AnyPath)]
    pub path: PathBuf,
    /// Format, listed below
    #[arg(long, value_name = "FORMAT")]
    pub to: String,
    /// File or directory to write, - for stdout [default: in the run directory]
    #[arg(short, long, value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    pub output: Option<PathBuf>,
    /// `output` is the file itself, whatever its name.
    #[arg(skip)]
    pub output_is_file: bool,
    /// Replace existing files
    #[arg(long)]
    pub force: bool,
    /// Unit of folded stacks [default: cpu if CPU samples exist, otherwise bytes]
    #[arg(long, value_enum)]
    pub weight: Option<Weight>,
    /// The part of the run.
    #[command(flatten)]
    pub slice: SliceArgs,
    /// With flame: show the difference to this run
    #[arg(long, value_name = "RUN", value_hint = clap::ValueHint::AnyPath)]
    pub against: Option<PathBuf>,
    /// With flame: write the call trees as JSON, flame.json
    #[arg(long)]
    pub json: bool,
    /// Limit the size of a file, with a note: perfetto, chrome, tensorboard, timeline
    #[arg(long, value_name = "SIZE")]
    pub max_size: Option<String>,
    /// With parquet: one file of each table for so many ranks [default: 128]
    #[arg(
        long, value_name = "RANKS", num_args = 0..=1, require_equals = true,
        default_missing_value = "128", value_parser = parse_ranks
    )]
    pub compact: Option<usize>,
}

/// Ranks of a file: at least one.
fn parse_ranks(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(ranks) if ranks > 0 => Ok(ranks),
        _ => Err("not a number of ranks, such as 128".to_owned()),
    }
}

/// Part of a run.
#[derive(Args, Debug, Clone, Default)]
pub struct SliceArgs {
    /// Only these ranks
    #[arg(long, value_name = "LIST")]
    pub rank: Option<String>,
    /// Only these training steps, by their times on the host
    #[arg(long, value_name = "LIST")]
    pub steps: Option<String>,
    /// Where training steps come from: auto, explicit, profiler, optimizer, loader,
    /// inferred
    #[arg(long, value_name = "SOURCE")]
    pub steps_from: Option<String>,
    /// Only this cycle of a schedule, or captured range, from 1
    #[arg(long, value_name = "N")]
    pub cycle: Option<u32>,
    /// Only what ends after this time
    #[arg(long, value_name = "TIME")]
    pub from_time: Option<String>,
    /// Only what starts before this time
    #[arg(long, value_name = "TIME")]
    pub to_time: Option<String>,
    /// Whether a file of nothing is written where nothing lies in the slice.
    #[arg(skip)]
    pub may_be_empty: bool,
}

/// Units of folded stacks.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Allocated bytes
    Bytes,
    /// Number of allocations
    Count,
    /// Nanoseconds on a CPU
    Cpu,
    /// Nanoseconds off a CPU
    Wait,
}
