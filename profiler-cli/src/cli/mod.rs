//! The command line as typed.
//!
//! Parsing only: every option of `run` stays the text that was typed, so that
//! flags, variables and `tprof.toml` go through one resolver
//! ([`crate::settings::resolve`]) and give the same errors. Help, the man page and the
//! completions come from these definitions.

mod switches;
mod unknown_command;
pub mod usage;

pub use crate::commands::diff::args::DiffArgs;
pub use crate::commands::import::args::ImportArgs;
pub use crate::commands::open::args::{OpenArgs, View};
pub use crate::commands::report::args::{ReportArgs, ReportWords, report_kinds};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
pub use switches::shown as with_opposites_shown;

const EXAMPLES: &str = "\
Examples:
  tprof run -- python train.py              record a job
  tprof run --mem exact -o r1 -- ./server   every allocation and free, into r1
  tprof report r1                           what happened
  tprof report memory r1                    where the memory went
  tprof diff r1 r2                          what changed from r1 to r2
  tprof export r1 --to chrome               open the result in Perfetto

`tprof COMMAND --help` says more; `tprof doctor` says what can be seen here.";

/// Everything that can be typed.
#[derive(Parser, Debug)]
#[command(
    name = "tprof",
    version,
    about = "Shows a machine-learning job from the outside, with no change to its code.",
    after_help = EXAMPLES,
    max_term_width = 80,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// Which command.
    #[command(subcommand)]
    pub command: Command,
}

/// The definitions of all commands and options.
pub fn command() -> clap::Command {
    switches::with_opposites(Cli::command())
}

/// Reads a command line, its first word the program.
pub fn parse_from<W: Into<OsString> + Clone>(
    words: impl IntoIterator<Item = W>,
) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Launch a command and record it
    #[command(
        after_help = RUN_NOTES,
        override_usage = "tprof run [OPTIONS] [--] COMMAND [ARG]..."
    )]
    Run(RunArgs),
    /// Print `export` lines that attach what is started by hand
    #[command(after_help = "Example:\n  eval \"$(tprof env -o r1)\"; python train.py")]
    Env(EnvArgs),
    /// Sample a process that already runs (CPU), and leave it as it was
    #[command(
        after_help = "Example:\n  tprof attach --duration 10s -o r1 4711; tprof report cpu r1"
    )]
    Attach(AttachArgs),
    /// Control a live run from another terminal
    Ctl(CtlArgs),
    /// Show what a run recorded
    Report(ReportWords),
    /// Compare two runs
    #[command(after_help = crate::commands::diff::args::DIFF_NOTES)]
    Diff(DiffArgs),
    /// Write a run in another tool's format
    Export(ExportArgs),
    /// Make a run of traces that torch.profiler and others wrote
    #[command(after_help = crate::commands::import::args::IMPORT_NOTES)]
    Import(ImportArgs),
    /// Show a run in Perfetto's page, or in one of tprof's own
    #[command(
        after_help = "Examples:\n  tprof open r1\n  tprof open r1 --as flame\n  tprof open r1 --rank 0 --steps 5\n  tprof open trace.json.gz --as timeline"
    )]
    Open(OpenArgs),
    /// Say what can be seen here, what cannot and why, and what to do
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  tprof completions bash > ~/.local/share/bash-completion/completions/tprof"
    )]
    Completions(CompletionsArgs),
    /// Print the man page, or write all of them into a directory
    Man(ManArgs),
    /// Collector of a session that nobody serves yet; started by an attached process.
    #[command(name = "__collect", hide = true)]
    Collect {
        /// Session directory
        session: PathBuf,
    },
    /// Anything else: named in an error with the nearest command.
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

const RUN_NOTES: &str = "\
Each option is also a variable (--max-size: TPROF_MAX_SIZE) and a key of
tprof.toml (max-size) in the current directory or at $TPROF_CONFIG; a flag
wins over a variable, a variable over the file. With TPROF_ENABLED=0 tprof
runs the command unrecorded, in its own place.

Ctrl-C goes to the command. Two within 2 seconds make tprof finish with what
it has and leave the command alone. With --follow, once the command has ended,
one makes it finish; so do the ends of --duration and --max-size.

The exit status is the command's own, or 125 if tprof failed, 126 if the
command cannot be executed, 127 if it was not found.";

/// `tprof run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// What to record and how.
    #[command(flatten)]
    pub options: RunOptions,
    /// Print the resolved configuration as TOML and stop
    #[arg(long)]
    pub dry_run: bool,
    /// Command to launch, with its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, value_hint = clap::ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Options that `run` and `env` share; text, resolved by [`crate::settings::resolve`].
#[derive(Args, Debug, Default, Clone)]
pub struct RunOptions {
    /// Run directory [default: tprof-COMMAND-TIME]
    #[arg(short, long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub output: Option<OsString>,
    /// Replace an existing run
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub force: Option<OsString>,
    /// What to record, separated by commas: cpu, gpu (or cuda), mem, comm, nvtx
    /// [default: all]
    #[arg(long, value_name = "LIST")]
    pub activities: Option<OsString>,
    /// Allocations: exact, sampled, sampled=BYTES or off [default: sampled]
    #[arg(long, value_name = "MODE")]
    pub mem: Option<OsString>,
    /// Stacks: auto, fp, dwarf, python or off [default: auto]
    #[arg(long, value_name = "MODE")]
    pub stacks: Option<OsString>,
    /// CPU samples a second and thread [default: 99]
    #[arg(long, value_name = "HZ", allow_hyphen_values = true)]
    pub sample_rate: Option<OsString>,
    /// Events to count, e.g. cycles,page-faults, auto or none [default: auto]
    #[arg(long, value_name = "LIST")]
    pub counters: Option<OsString>,
    /// Time between readings of RSS and cgroup, 10ms to 1m [default: 100ms]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub rss_interval: Option<OsString>,
    /// Time between readings of GPUs by NVML, 100ms to 1m [default: 500ms]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub gpu_interval: Option<OsString>,
    /// Stop recording when the files hold this much, e.g. 2GiB
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub max_size: Option<OsString>,
    /// Stop recording after this time, e.g. 90s or 5m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub duration: Option<OsString>,
    /// Begin recording after this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub delay: Option<OsString>,
    /// Begin with recording off, until `tprof ctl start`
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub paused: Option<OsString>,
    /// Stay until the last process of the job ends, daemons included
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub follow: Option<OsString>,
    /// When a buffer is full: wait (briefly) or drop [default: wait]
    #[arg(long, value_name = "MODE")]
    pub on_full: Option<OsString>,
    /// Also write this format after the run
    #[arg(long, value_name = "FORMAT", help = crate::commands::export::formats::export_help())]
    pub export: Option<OsString>,
    /// Keep no arguments, paths or environment in the run
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub redact: Option<OsString>,
    /// Print no summary
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub quiet: Option<OsString>,
}

/// `tprof env`.
#[derive(Args, Debug)]
pub struct EnvArgs {
    /// What to record and how.
    #[command(flatten)]
    pub options: RunOptions,
}

/// `tprof attach`.
#[derive(Args, Debug)]
pub struct AttachArgs {
    /// Process to sample, with its threads and children
    #[arg(value_name = "PID", allow_hyphen_values = true)]
    pub pid: String,
    /// Leave out the processes that descend from it already
    #[arg(long)]
    pub alone: bool,
    /// Stop after this time, e.g. 10s [default: at Ctrl-C or its end]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub duration: Option<OsString>,
    /// Run directory [default: tprof-COMMAND-TIME]
    #[arg(short, long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub output: Option<OsString>,
    /// Samples a second and thread [default: 99]
    #[arg(long, value_name = "HZ", allow_hyphen_values = true)]
    pub sample_rate: Option<OsString>,
    /// Stacks: auto, fp, dwarf or off [default: auto]
    #[arg(long, value_name = "MODE")]
    pub stacks: Option<OsString>,
    /// Events to count, e.g. cycles,page-faults, auto or none [default: auto]
    #[arg(long, value_name = "LIST")]
    pub counters: Option<OsString>,
    /// Replace an existing run
    #[arg(long)]
    pub force: bool,
    /// Keep no arguments and paths in the run
    #[arg(long)]
    pub redact: bool,
    /// Print no summary
    #[arg(short, long)]
    pub quiet: bool,
}

/// `tprof ctl`.
#[derive(Args, Debug)]
pub struct CtlArgs {
    /// What to ask for.
    #[command(subcommand)]
    pub request: CtlRequest,
}

/// What `tprof ctl` can ask a live run.
#[derive(Subcommand, Debug)]
pub enum CtlRequest {
    /// Start recording
    Start(CtlRun),
    /// Stop recording; the job runs on
    Stop(CtlRun),
    /// Put a named mark on the time line
    Mark {
        /// Name of the mark
        name: String,
        /// Run directory
        #[arg(value_name = "RUN", value_hint = clap::ValueHint::DirPath)]
        run: PathBuf,
    },
    /// Show rates, losses and size
    Status {
        /// Run directory
        #[arg(value_name = "RUN", value_hint = clap::ValueHint::DirPath)]
        run: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// A live run.
#[derive(Args, Debug)]
pub struct CtlRun {
    /// Run directory
    #[arg(value_name = "RUN", value_hint = clap::ValueHint::DirPath)]
    pub run: PathBuf,
}

/// `tprof export`.
#[derive(Args, Debug, Clone, Default)]
#[command(after_help = crate::commands::export::formats::help())]
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

/// `tprof doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Command to examine: what of it could be seen
    #[arg(value_name = "COMMAND", trailing_var_arg = true, value_hint = clap::ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// `tprof completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// Which shell
    pub shell: Shell,
}

/// Shells that completions are made for.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// `tprof man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Write one page per command into this directory
    #[arg(short, long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub output: Option<PathBuf>,
}
