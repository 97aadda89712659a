//! Sends requests to the collector of a live run, and explains why one fails.

use std::mem::take;
use std::path::Path;

use serde_json::Value;
use tprof_collect::control::{self, Reply, Request};
use tprof_collect::dumps;
use tprof_os::proc;
use tprof_ui::errors::{Failure, print_stderr};

use crate::terminal::quote;

/// Sends a request to the collector of a live run, and returns its reply.
pub fn ask(path: &Path, request: &Request) -> Result<Reply, Failure> {
    refuse_what_is_no_run(path, "tprof ctl")?;
    let reply = match request {
        Request::Steps { count, .. } => control::start_steps(path, *count, || {
            print_stderr(
                "tprof: steps are counted from now on; waiting until the job has made five\n",
            );
        }),
        request => control::request(path, request),
    };
    let reply = reply.map_err(|e| not_reached(path, &e))?;
    match reply.ok {
        true => Ok(reply),
        false => Err(refused(path, reply.message)),
    }
}

/// Writes what a live run keeps as a run within the run, and returns its name.
pub fn dump(path: &Path, why: &str) -> Result<String, Failure> {
    refuse_what_is_no_run(path, "tprof ctl dump")?;
    match dumps::write(path, why, None).map_err(|error| not_reached(path, &error))? {
        (name, reply) if reply.ok => Ok(name),
        (_, reply) => Err(refused(path, reply.message)),
    }
}

fn refused(path: &Path, message: String) -> Failure {
    Failure::new(format!("the run in `{}` refused the request", path.display()))
        .cause(message)
        .hint(format!("tprof ctl status {}", quote::word(path.as_os_str())))
}

/// Makes the collector of a live run write everything that was recorded until `until_ns`, or until
/// now, with its names. Returns sentences about the data that it could not write in time.
pub fn written_out(run: &Path, until_ns: Option<u64>) -> Result<Vec<String>, Failure> {
    let reply = ask(run, &Request::Write { until_ns })?;
    let missing = reply.status.and_then(|mut status| status["missing"].as_array_mut().map(take));
    let missing: Vec<Value> = missing.unwrap_or_default();
    let names = missing.iter().filter_map(Value::as_str);
    Ok(names.map(|what| format!("not written yet, and not in this report: {what}")).collect())
}

/// Fails if a path can't be a run. `command` is the command that needs one.
pub fn refuse_what_is_no_run(path: &Path, command: &str) -> Result<(), Failure> {
    let shown = path.display();
    let failure = Failure::new(format!("`{shown}` is not a run"));
    if !path.exists() {
        let hint = match shown.to_string().parse().is_ok_and(proc::lives) {
            // The name is the pid of a process that may not be recorded.
            true => format!("tprof attach {shown}, then Ctrl-C and tprof report findings"),
            false => "ls -d tprof-*".to_owned(),
        };
        return Err(failure.cause("the directory does not exist").hint(hint));
    }
    if !path.is_dir() {
        return Err(failure
            .cause("the path is a file")
            .hint(format!("{command} with the run directory that contains the file")));
    }
    Ok(())
}

/// Makes the failure for a collector that can't be reached.
pub fn not_reached(path: &Path, error: &dyn std::error::Error) -> Failure {
    let report = format!("tprof report {}", quote::word(path.as_os_str()));
    Failure::new(format!("cannot reach the collector of `{}`", path.display()))
        .cause(error.to_string())
        .hint(if error.to_string().contains("has ended") {
            report
        } else {
            format!("{report}, if the run has ended")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_the_pid_of_a_process_the_advice_is_to_attach() {
        let advice = |name: &str| {
            refuse_what_is_no_run(Path::new(name), "tprof where").unwrap_err().hint.unwrap()
        };
        let pid = std::process::id().to_string();
        assert!(advice(&pid).starts_with(&format!("tprof attach {pid}")));
        assert_eq!(advice("no-such-run"), "ls -d tprof-*");
    }
}
