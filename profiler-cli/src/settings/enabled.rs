//! `TPROF_ENABLED=0`: turns tprof off in job scripts that always put `tprof run` before their
//! command. The command replaces tprof, and runs as if it had been typed without it.

use super::given::{GivenValue, Source};
use super::values::flag;
use crate::launch;
use crate::launch::failures::{not_executed, not_run};
use std::ffi::OsString;
use std::io;
use tprof_ui::errors::Failure;

/// Name of the variable.
pub const ENABLED: &str = "TPROF_ENABLED";

/// Whether tprof should record: true unless the variable is set to a false value.
pub fn is_enabled() -> Result<bool, Failure> {
    match std::env::var_os(ENABLED) {
        None => Ok(true),
        Some(text) => flag(&GivenValue { name: "enabled", text, source: Source::Variable }),
    }
}

/// Replaces this process with a command. Returns only if that fails.
pub fn become_command(command: &[OsString]) -> Failure {
    if let Err(why) = launch::find(&command[0]) {
        return not_run(&command[0], why);
    }
    let error = match launch::Replacement::new(command) {
        Ok(mut command) => io::Error::from_raw_os_error(command.run(None)),
        Err(error) => error,
    };
    not_executed(&command[0], error)
}
