//! Options of `tprof export`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Arguments of `tprof export`.
#[derive(Args, Debug, Clone, Default)]
pub struct ExportArgs {
    /// Run directory, or one of its files
    #[arg(value_name = "RUN", value_hint = clap::ValueHint::AnyPath)]
    pub path: PathBuf,
    /// Format to write (listed below)
    #[arg(long, value_name = "FORMAT")]
    pub to: String,
    /// File or directory to write, or - for stdout [default: in the run directory]
    #[arg(short, long, value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    pub output: Option<PathBuf>,
    /// Whether `output` is the file itself, whatever its name.
    #[arg(skip)]
    pub output_is_file: bool,
    /// Replace existing files
    #[arg(long)]
    pub force: bool,
    /// What folded stacks count [default: cpu if there are CPU samples, otherwise bytes]
    #[arg(long, value_enum)]
    pub weight: Option<Weight>,
    /// The part of the run.
    #[command(flatten)]
    pub slice: SliceArgs,
    /// With flame: show the difference from this run
    #[arg(long, value_name = "RUN", value_hint = clap::ValueHint::AnyPath)]
    pub against: Option<PathBuf>,
    /// With flame: write the call trees as JSON, flame.json
    #[arg(long)]
    pub json: bool,
    /// Cut each file at this size, with a note (perfetto, chrome, tensorboard, timeline)
    #[arg(long, value_name = "SIZE")]
    pub max_size: Option<String>,
    /// With parquet: put this many ranks into one file per table [default: 128]
    #[arg(
        long, value_name = "RANKS", num_args = 0..=1, require_equals = true,
        default_missing_value = "128", value_parser = parse_ranks
    )]
    pub compact: Option<usize>,
}

/// Parses the number of ranks per file, which is at least one.
fn parse_ranks(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(ranks) if ranks > 0 => Ok(ranks),
        _ => Err("not a number of ranks, such as 128".to_owned()),
    }
}

/// Part of a run.
#[derive(Args, Debug, Clone, Default)]
pub struct SliceArgs {
    /// Take only these ranks
    #[arg(long, value_name = "LIST")]
    pub rank: Option<String>,
    /// Take only these training steps, by their times on the host
    #[arg(long, value_name = "LIST")]
    pub steps: Option<String>,
    /// Where training steps come from: auto, explicit, profiler, optimizer, loader,
    /// inferred
    #[arg(long, value_name = "SOURCE")]
    pub steps_from: Option<String>,
    /// Take only this cycle of a schedule or this captured range, counted from 1
    #[arg(long, value_name = "N")]
    pub cycle: Option<u32>,
    /// Take only what ends after this time
    #[arg(long, value_name = "TIME")]
    pub from_time: Option<String>,
    /// Take only what starts before this time
    #[arg(long, value_name = "TIME")]
    pub to_time: Option<String>,
    /// Whether a Chrome trace is written even if it has no events.
    #[arg(skip)]
    pub allows_empty_chrome_trace: bool,
}

/// Units of folded stacks.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Bytes that were allocated
    Bytes,
    /// Number of allocations
    Count,
    /// Nanoseconds on a CPU
    Cpu,
    /// Nanoseconds waiting off a CPU
    Wait,
    /// Samples of GPU instructions
    Stalls,
}
