//! Runs a command with limits, for `tprof serve`. If a hostile run makes a report use too much
//! memory or time, only this process is ended, and not the server.

use std::ffi::OsString;

use clap::Args;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use tprof_ui::errors::{Failure, reason};

/// Name of the hidden command.
pub const LIMITED: &str = "__limited";

/// Limits, followed by a command.
#[derive(Args, Debug)]
pub struct LimitedArgs {
    /// Memory limit in bytes.
    memory: u64,
    /// File size limit in bytes.
    output: u64,
    /// Process id of the server; this process ends with it.
    parent: i32,
    /// Niceness of the command.
    nice: i32,
    /// The command to run.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// Applies the limits.
pub fn limit(args: &LimitedArgs) -> anyhow::Result<()> {
    let failed =
        |error: nix::Error| Failure::new("cannot limit this process").cause(reason(&error.into()));
    // The kernel sends this process SIGTERM when the server ends. SIGKILL would leave temporary
    // directories behind.
    set_pdeathsig(Signal::SIGTERM).map_err(failed)?;
    if getppid().as_raw() != args.parent {
        return Err(Failure::new("the server is gone")
            .cause("it ended before this command began")
            .into());
    }
    // RLIMIT_DATA doesn't count mapped files. RLIMIT_AS would, but a trace may be larger than the
    // limit.
    setrlimit(Resource::RLIMIT_DATA, args.memory, args.memory).map_err(failed)?;
    setrlimit(Resource::RLIMIT_FSIZE, args.output, args.output).map_err(failed)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(failed)?;
    if args.nice > 0 {
        crate::launch::system::lower_priority(args.nice);
    }
    Ok(())
}
