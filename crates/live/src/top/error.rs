//! Errors of `tprof top`: what failed, why, and what to try.

use std::ffi::OsStr;
use std::fmt;
use std::io;

/// An error in three lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopError {
    /// The operation that failed.
    pub what: String,
    /// Why it failed.
    pub why: String,
    /// Advice: something to try.
    pub hint: String,
}

impl fmt::Display for TopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}\n{}", self.what, self.why, self.hint)
    }
}

impl std::error::Error for TopError {}

impl TopError {
    fn new(what: String, why: impl Into<String>, hint: impl Into<String>) -> TopError {
        TopError { what, why: why.into(), hint: hint.into() }
    }

    pub(super) fn no_run() -> TopError {
        TopError::new("no run is named".to_owned(), "`tprof top` shows one run", "tprof ls")
    }

    pub(super) fn unreadable(run: &OsStr, error: &io::Error) -> TopError {
        let what = format!("cannot open `{}`", run.to_string_lossy());
        TopError::new(what, error.to_string(), "tprof ls")
    }

    pub(super) fn not_a_run(run: &OsStr) -> TopError {
        let what = format!("`{}` is not a run", run.to_string_lossy());
        let why = "it holds neither a trace file (`*.tprof`) nor a `run.json`";
        TopError::new(what, why, "tprof ls")
    }

    pub(super) fn bad_host(host: &str) -> TopError {
        let what = format!("`{host}` is not a host name");
        let why = "a name that begins with `-` would be an option of ssh";
        TopError::new(what, why, "tprof top HOST:RUN")
    }

    pub(super) fn no_ssh(program: &OsStr, error: &io::Error) -> TopError {
        let what = format!("cannot start `{}`", program.to_string_lossy());
        TopError::new(what, error.to_string(), "install the client of OpenSSH")
    }

    /// Returns the error for another host that sent no snapshot, with the reason.
    pub(super) fn remote(host: &str, why: &str, run: &str) -> TopError {
        let what = format!("no snapshot of the run came from `{host}`");
        let why = if why.is_empty() { "ssh ended without a message" } else { why };
        TopError::new(what, why, format!("ssh {host} tprof top --once {run}"))
    }

    pub(super) fn ended(run: &OsStr) -> TopError {
        let what = format!("there is no snapshot of `{}`", run.to_string_lossy());
        TopError::new(what, "it ended before the first snapshot", "tprof ls")
    }

    pub(super) fn output(error: &io::Error) -> TopError {
        let what = "cannot write to the standard output".to_owned();
        TopError::new(what, error.to_string(), "redirect stdout to another file")
    }

    pub(super) fn reader() -> TopError {
        let what = "the run is no longer read".to_owned();
        TopError::new(what, "the thread that reads its files ended", "tprof top --once RUN")
    }

    pub(super) fn terminal(error: &io::Error) -> TopError {
        let what = "cannot use the terminal".to_owned();
        TopError::new(what, error.to_string(), "tprof top --once RUN")
    }
}
