//! `tprof serve` and `tprof top`: handed to `tprof-serve`, which lies beside this program.

mod args;
mod top_args;

pub use args::ServeArgs;
pub use top_args::TopArgs;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::runs::newest::live_run_here;
use crate::terminal::errors::{Failure, reason};

/// The program.
const SERVER: &str = "tprof-serve";
/// Where it finds this one.
const PROGRAM: &str = "TPROF_PROGRAM";

/// Becomes `tprof-serve` with the words of this command line.
pub fn run() -> anyhow::Result<ExitCode> {
    become_server(None)
}

/// The same for `tprof top`, of the newest run in progress here where none is named.
pub fn top(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let newest = args.run.is_none().then(|| live_run_here("tprof top")).transpose()?;
    become_server(newest)
}

fn become_server(further: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let own = std::env::current_exe()?;
    let beside = own.with_file_name(SERVER);
    let server = if beside.is_file() { beside } else { PathBuf::from(SERVER) };
    let words = std::env::args_os().skip(1).chain(further.map(PathBuf::into_os_string));
    let error = Command::new(&server).args(words).env(PROGRAM, own).exec();
    Err(Failure::new(format!("cannot start {SERVER}"))
        .cause(reason(&error))
        .hint(format!("install {SERVER} beside tprof: archives and wheels have both"))
        .into())
}
