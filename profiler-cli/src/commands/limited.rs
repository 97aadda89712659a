//! A command with limits, as the server of `tprof serve` starts it: what a hostile run makes of it
//! ends this process only.

use std::ffi::OsString;

use clap::Args;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use crate::terminal::errors::{Failure, reason};

/// The hidden command.
pub const LIMITED: &str = "__limited";

/// Limits, then a command.
#[derive(Args, Debug)]
pub struct LimitedArgs {
    /// Most bytes of memory.
    memory: u64,
    /// Most bytes of a file.
    output: u64,
    /// The server; this process ends with it.
    parent: i32,
    /// By how much other programs go before it.
    nice: i32,
    /// The command.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// Takes the limits.
pub fn limit(args: &LimitedArgs) -> anyhow::Result<()> {
    let failed =
        |error: nix::Error| Failure::new("cannot limit this process").cause(reason(&error.into()));
    // SIGTERM: temporary directories are removed.
    set_pdeathsig(Signal::SIGTERM).map_err(failed)?;
    if getppid().as_raw() != args.parent {
        return Err(Failure::new("the server is gone")
            .cause("it ended before this command began")
            .into());
    }
    // What is mapped from files does not count: a trace may be larger than the memory.
    setrlimit(Resource::RLIMIT_DATA, args.memory, args.memory).map_err(failed)?;
    setrlimit(Resource::RLIMIT_FSIZE, args.output, args.output).map_err(failed)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(failed)?;
    if args.nice > 0 {
        crate::launch::system::lower_priority(args.nice);
    }
    Ok(())
}
