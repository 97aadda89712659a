//! Options of `tprof run`.

use crate::settings::RunOptions;
use clap::Args;
use std::ffi::OsString;

const RUN_NOTES: &str = "\
Each option is also a variable (--max-size: TPROF_MAX_SIZE) and a key of
tprof.toml (max-size) in the current directory or at $TPROF_CONFIG. A flag
wins over a variable, a variable over the file. With TPROF_ENABLED=0 the
command replaces tprof and is not recorded.

Ctrl-C goes to the command. A second Ctrl-C within 2 seconds ends the recording;
the command runs on. With --follow, after the end of the command, one Ctrl-C
ends the recording; so do --duration and --max-size.

The exit status is that of the command. It is 125 if tprof failed, 126 if the
command cannot be executed, 127 if the command was not found. Where a limit (of
memory, threads, files) keeps tprof from recording, the command runs without.";

/// `tprof run`.
#[derive(Args, Debug)]
#[command(after_help = RUN_NOTES, override_usage = "tprof run [OPTIONS] [--] COMMAND [ARG]...")]
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
