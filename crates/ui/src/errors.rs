//! The message for a failure: three lines, and an exit status.
//!
//! ```text
//! error: cannot read `run7/rank-3.tprof`
//! cause: written by format 5; this tprof reads 3 to 4
//!   try: install tprof 0.6 or newer
//! ```

use crate::columns::printable;
use std::fmt;
use std::io::Write;

/// Exit status if tprof itself failed.
pub const FAILED: u8 = 125;
/// Exit status if the command cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// Exit status if the command was not found.
pub const NOT_FOUND: u8 = 127;

/// An error with its cause, something to try, and an exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The operation that failed.
    pub what: String,
    /// Why the operation failed.
    pub cause: Option<String>,
    /// Advice: something to try.
    pub hint: Option<String>,
    /// Exit status of the program.
    pub code: u8,
    /// Whether the cause is a limit of the process or the machine. If so, the job is run without
    /// tprof, because it alone may stay below the limit.
    pub is_limit: bool,
}

impl Failure {
    /// Creates a failure of tprof itself, with the exit status 125.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), cause: None, hint: None, code: FAILED, is_limit: false }
    }

    /// Adds the cause.
    #[must_use]
    pub fn cause(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Adds advice: something to try.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the operating system's message as the cause. The hint is advice for this error, or
    /// `usual` if there is none.
    #[must_use]
    pub fn because(self, error: &std::io::Error, usual: impl Into<String>) -> Self {
        self.cause(reason(error)).hint(remedy(error, usual)).limited_by(error)
    }

    /// Notes whether the operating system's error comes from a limit.
    #[must_use]
    pub fn limited_by(mut self, error: &std::io::Error) -> Self {
        const LIMITS: [i32; 5] =
            [libc::EMFILE, libc::ENFILE, libc::EAGAIN, libc::ENOMEM, libc::EFBIG];
        self.is_limit = error.raw_os_error().is_some_and(|errno| LIMITS.contains(&errno));
        self
    }

    /// Sets the exit status.
    #[must_use]
    pub fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }
}

/// Prints an error to stderr, and returns its exit status.
pub fn show(error: &anyhow::Error) -> u8 {
    let failure = error.downcast_ref::<Failure>().cloned().unwrap_or_else(|| {
        let causes: Vec<_> = error.chain().skip(1).map(ToString::to_string).collect();
        let failure = Failure::new(error.to_string());
        if causes.is_empty() { failure } else { failure.cause(causes.join(": ")) }
    });
    let mut text = String::new();
    let lines = [
        ("error", Some(failure.what)),
        ("cause", failure.cause),
        ("  try", Some(failure.hint.unwrap_or_else(|| "tprof --help, tprof doctor".to_owned()))),
    ];
    for (label, line) in lines {
        if let Some(line) = line {
            // Each part is one line, even if a file name or a message contains line breaks.
            let line: String = line.chars().map(printable).collect();
            text += &format!("{}: {line}\n", crate::paint::error_label(label));
        }
    }
    print_stderr(&text);
    failure.code
}

/// Writes to stderr. A closed stderr is not an error.
pub fn print_stderr(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Returns the operating system's message, without the error number.
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// Returns advice for an error that comes from the machine or a limit. For other errors, returns
/// `usual`, the caller's advice for the operation.
pub fn remedy(error: &std::io::Error, usual: impl Into<String>) -> String {
    let known = match error.raw_os_error() {
        Some(libc::EMFILE) => "a higher limit of open files: ulimit -n",
        Some(libc::ENFILE) => "wait, or fewer open files on this machine: /proc/sys/fs/file-nr",
        Some(libc::EAGAIN) => {
            "higher limits of processes (ulimit -u, pids.max of the cgroup) and memory (ulimit -v)"
        }
        Some(libc::ENOMEM) => "a higher memory limit: ulimit -v, and the memory limit of the job",
        Some(libc::ENOSPC | libc::EDQUOT) => {
            "df; -o on another disk, or TMPDIR for temporary files"
        }
        Some(libc::EFBIG) => "a higher limit of a file's size: ulimit -f",
        Some(libc::EROFS) => "a directory of another file system: this one is mounted read-only",
        Some(libc::EIO) => "dmesg, for what the kernel says of the disk",
        _ => return usual.into(),
    };
    known.to_owned()
}

/// Whether an error only means that the reader of stdout has closed the pipe.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |e: &std::io::Error| e.kind() == std::io::ErrorKind::BrokenPipe;
    error.chain().any(|e| e.downcast_ref::<std::io::Error>().is_some_and(broken))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}

/// Returns the name that is most similar to what was typed, if one is similar: it has the same
/// beginning or end, or at most every third letter is wrong.
pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const BEGINNING: usize = 3;
    let typed = typed.to_lowercase();
    let slips = (typed.chars().count() / 3).max(1);
    let distance = |name: &str| {
        let name = name.to_lowercase();
        let shorter = name.len().min(typed.len());
        let begins = name.starts_with(&typed) || typed.starts_with(&name);
        match strsim::osa_distance(&typed, &name) {
            slip if slip <= slips => Some(slip),
            slip if begins && shorter >= BEGINNING => Some(slip),
            _ => None,
        }
    };
    let near = names.into_iter().filter_map(|name| Some((distance(name)?, name)));
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_similar_and_another_word_is_not() {
        let names = ["run", "report", "export", "import", "doctor", "open", "completions"];
        let near = |typed| nearest(typed, names);
        assert_eq!(near("rum"), Some("run"));
        assert_eq!(near("reprot"), Some("report"));
        assert_eq!(near("REPORT"), Some("report"));
        assert_eq!(near("completion"), Some("completions"));
        assert_eq!(near("compl"), Some("completions"));
        assert_eq!([near("ls"), near("top"), near("stat"), near("query"), near("")], [None; 5]);
        assert_eq!(nearest("weit", ["wait", "drop"]), Some("wait"));
        assert_eq!(nearest("gup", ["cpu", "gpu"]), Some("gpu"));
    }
}
