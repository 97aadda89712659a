//! Parses the command line.
//!
//! The values of `run`'s options stay text here, so that options, variables and `tprof.toml` go
//! through one resolver ([`crate::settings`]) and so produce the same errors. Help, the man page
//! and the completions are generated from these definitions.

mod misplaced;
mod switches;
mod unknown_command;
pub mod usage;

use crate::commands::attach::AttachArgs;
use crate::commands::catalogue::CATALOGUE;
use crate::commands::compare::CompareArgs;
use crate::commands::completions::{CompletionsArgs, ManArgs};
use crate::commands::ctl::CtlArgs;
use crate::commands::diff::DiffArgs;
use crate::commands::doctor::{self, DoctorArgs};
use crate::commands::env::EnvArgs;
use crate::commands::export::ExportArgs;
use crate::commands::import::ImportArgs;
use crate::commands::limited::{LIMITED, LimitedArgs};
use crate::commands::ls::LsArgs;
use crate::commands::open::OpenArgs;
use crate::commands::report::ReportWords;
use crate::commands::rm::RmArgs;
use crate::commands::run::RunArgs;
use crate::commands::standstill::WhereArgs;
use crate::launch::fallback;
use crate::runs::formats;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
pub use switches::shown as with_opposites_shown;
use tprof_ui::args::{ArchiveArgs, ServeArgs, SqlArgs, TopArgs};

const EXAMPLES: &str = "\
Examples:
  tprof run -- python train.py              record a job
  tprof run --mem exact -o r1 -- ./server   record every allocation into r1
  tprof report                              print a summary of the newest run
  tprof report memory r1                    print where memory was allocated
  tprof diff r1 r2                          print what changed from r1 to r2
  tprof export r1 --to chrome               write a trace for Perfetto

`tprof COMMAND --help` lists its options; `tprof doctor` checks this machine.";

/// Everything that can be typed.
#[derive(Parser, Debug)]
#[command(
    name = "tprof",
    version,
    about = "Profiles machine-learning jobs from the outside, without changes to their code.",
    after_help = EXAMPLES,
    max_term_width = 80,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// The command to execute.
    #[command(subcommand)]
    pub command: Command,
}

/// Returns the definitions of all commands and options.
pub fn command() -> clap::Command {
    switches::with_opposites(Cli::command())
}

/// Parses a command line, whose first word is the program.
pub fn parse_from<W: Into<OsString> + Clone>(
    words: impl IntoIterator<Item = W>,
) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The commands of `tprof`.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Launch a command and record it
    Run(RunArgs),
    /// Print shell exports that record jobs you start yourself
    #[command(after_help = "Example:\n  eval \"$(tprof env -o r1)\"; python train.py")]
    Env(EnvArgs),
    /// Sample the CPU use of a running process
    #[command(
        after_help = "Example:\n  tprof attach --duration 10s -o r1 4711; tprof report cpu r1"
    )]
    Attach(AttachArgs),
    /// Control a run in progress from another terminal
    Ctl(CtlArgs),
    /// Print reports of a run; `tprof KIND RUN` is short for it
    Report(ReportWords),
    /// Compare two runs
    Diff(DiffArgs),
    /// Compare any number of runs in one table
    Compare(CompareArgs),
    /// List the runs in a directory
    Ls(LsArgs),
    /// Delete runs from disk
    Rm(RmArgs),
    /// Write a run in another tool's format
    #[command(after_help = formats::help())]
    Export(ExportArgs),
    /// Import traces (torch.profiler, Chrome JSON) as a run
    Import(ImportArgs),
    /// Open a run in the browser, in Perfetto or in one of tprof's pages
    #[command(
        after_help = "Examples:\n  tprof open r1\n  tprof open r1 --as flame\n  tprof open r1 --rank 0 --steps 5\n  tprof open trace.json.gz --as timeline"
    )]
    Open(OpenArgs),
    /// Show finished runs and runs in progress in the browser
    Serve(ServeArgs),
    /// Watch the ranks of a run in the terminal
    Top(TopArgs),
    /// Say where a run in progress stands still, and which rank holds up the others
    ///
    /// Also reads dumps of PyTorch's Flight Recorder, which a job leaves that timed out.
    #[command(
        after_help = "Examples:\n  tprof where r1\n  tprof where --rank 37 r1\n  tprof where /tmp/nccl_trace/"
    )]
    Where(WhereArgs),
    /// Query runs with SQL
    Sql(SqlArgs),
    /// Add runs to an archive that SQL can query
    Archive(ArchiveArgs),
    /// Check what tprof can record here, and how to fix what it cannot
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  tprof completions bash > ~/.local/share/bash-completion/completions/tprof"
    )]
    Completions(CompletionsArgs),
    /// Print the man page, or write all man pages into a directory
    Man(ManArgs),
    /// The program that `doctor --run-kernel` records.
    #[command(name = doctor::RUN_KERNEL, hide = true)]
    RunKernel,
    /// Lists what `tprof serve` can request.
    #[command(name = CATALOGUE, hide = true)]
    Catalogue,
    /// A command with limits, of `tprof serve`.
    #[command(name = LIMITED, hide = true)]
    Limited(LimitedArgs),
    /// Collector of a session that has none; an attached process starts it.
    #[command(name = "__collect", hide = true)]
    Collect {
        /// Directory of the session
        session: PathBuf,
    },
    /// Samples the counters of devices, for a collector.
    #[command(name = tprof_collect::gpu_metrics::COMMAND, hide = true)]
    GpuMetrics {
        /// Time between samples, ns
        interval_ns: u64,
    },
    /// Waits for a job whose tprof failed.
    #[command(name = fallback::WAIT, hide = true)]
    Wait(fallback::WaitArgs),
    /// Anything else: an error that names the nearest command.
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}
