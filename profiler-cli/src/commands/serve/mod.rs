//! `tprof serve` and `tprof top`: handed to `tprof-serve`, which lies beside this program.

mod args;
mod top_args;

pub use args::ServeArgs;
pub use top_args::TopArgs;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::terminal::errors::{Failure, reason};

/// The program.
const SERVER: &str = "tprof-serve";
/// Where it finds this one.
const PROGRAM: &str = "TPROF_PROGRAM";

/// Becomes `tprof-serve` with the words of this command line.
pub fn run() -> anyhow::Result<ExitCode> {
    let own = std::env::current_exe()?;
    let beside = own.with_file_name(SERVER);
    let server = if beside.is_file() { beside } else { PathBuf::from(SERVER) };
    let error = Command::new(&server).args(std::env::args_os().skip(1)).env(PROGRAM, own).exec();
    Err(Failure::new(format!("cannot start {SERVER}"))
        .cause(reason(&error))
        .hint(format!("install {SERVER} beside tprof: archives and wheels have both"))
        .into())
}
