//! Options of `tprof run`.

use crate::settings::RunOptions;
use clap::Args;
use std::ffi::OsString;

const RUN_NOTES: &str = "\
Each option can also be set by a variable (--max-size: TPROF_MAX_SIZE) or a key
of tprof.toml (max-size), in the current directory or at $TPROF_CONFIG. A flag
overrides a variable, and a variable overrides the file. With TPROF_ENABLED=0
the command replaces tprof and is not recorded.

Ctrl-C goes to the command. A second Ctrl-C within 2 seconds ends the recording,
and the command keeps running. With --follow, once the command has ended, a
single Ctrl-C ends the recording; so do --duration and --max-size.

The exit status is that of the command, or 125 if tprof failed, 126 if the
command cannot be executed, 127 if it was not found. If a limit (on memory,
threads or files) keeps tprof from recording, the command runs unrecorded.";

/// Arguments of `tprof run`.
#[derive(Args, Debug)]
#[command(after_help = RUN_NOTES, override_usage = "tprof run [OPTIONS] [--] COMMAND [ARG]...")]
pub struct RunArgs {
    /// Settings of the recording.
    #[command(flatten)]
    pub options: RunOptions,
    /// Print the resolved configuration as TOML and stop
    #[arg(long)]
    pub dry_run: bool,
    /// Command to launch, with its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, value_hint = clap::ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}
