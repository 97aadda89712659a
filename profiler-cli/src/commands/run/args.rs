//! Options of `tprof run`.

use crate::settings::RunOptions;
use clap::Args;
use std::ffi::OsString;

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
