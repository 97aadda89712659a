//! `tprof diff A B`.

use clap::Args;
use std::path::PathBuf;

/// What is said below the options.
pub const DIFF_NOTES: &str = "\
Conditions of --fail-on are METRIC>CHANGE or METRIC<CHANGE; a change has a sign
and a unit: step_time>+5%, peak_heap>+200MiB, gpu_busy<-10%. Where there are
steps to tell by, a change that may be chance trips nothing.
Metrics: step_time compute_time exposed_communication exposed_copies idle_time
  gpu_busy launches wall_time cpu_time processes threads peak_heap peak_rss
  peak_device_memory
Times and shares cannot be judged where the hardware differs.

The exit status is 1 if a condition trips, 125 if one cannot be judged.

Example:
  tprof diff main.tprof-run branch.tprof-run --fail-on 'step_time>+5%'";

/// `tprof diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// What is compared with: a run directory or one of its files
    #[arg(value_name = "A", value_hint = clap::ValueHint::AnyPath)]
    pub a: PathBuf,
    /// What is compared
    #[arg(value_name = "B", value_hint = clap::ValueHint::AnyPath)]
    pub b: PathBuf,
    /// Exit with 1 if this holds of the change from A to B; may be repeated
    #[arg(long, value_name = "CONDITION")]
    pub fail_on: Vec<String>,
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print CSV: one table, the first unless --table names another
    #[arg(long)]
    pub csv: bool,
    /// Table that --csv prints; an unknown name lists them
    #[arg(long, value_name = "NAME", requires = "csv")]
    pub table: Option<String>,
    /// Rows in each table
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Only this rank of both
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
    /// Only these steps of A, by their numbers: 5 or 5..20
    #[arg(long, value_name = "STEPS")]
    pub steps_a: Option<String>,
    /// Only these steps of B
    #[arg(long, value_name = "STEPS")]
    pub steps_b: Option<String>,
}
