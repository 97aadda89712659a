//! What a user reads when something fails: three lines and an exit status.
//!
//! ```text
//! error: cannot read `run7/rank-3.tprof`
//! cause: written by format 5; this tprof reads 3 to 4
//!   try: install tprof 0.6 or newer
//! ```

use std::fmt;
use std::io::Write;

/// Exit status when tprof itself failed.
pub const FAILED: u8 = 125;
/// Exit status when the command cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// Exit status when the command was not found.
pub const NOT_FOUND: u8 = 127;

/// An error with its cause, something to try, and an exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong.
    pub what: String,
    /// Why.
    pub cause: Option<String>,
    /// What to try.
    pub hint: Option<String>,
    /// Exit status.
    pub code: u8,
}

impl Failure {
    /// A failure of tprof itself (125).
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), cause: None, hint: None, code: FAILED }
    }

    /// Says why.
    #[must_use]
    pub fn cause(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Says what to try.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the exit status.
    #[must_use]
    pub fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }
}

/// Prints an error to stderr and gives the exit status that goes with it.
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
    for (label, said) in lines {
        if let Some(said) = said {
            // One line each, whatever a file name or a message holds.
            let said = said.replace('\n', " ");
            text += &format!("{}: {said}\n", crate::paint::error_label(label));
        }
    }
    say(&text);
    failure.code
}

/// Writes to stderr. That nobody reads it is not an error.
pub fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// What the system says, without its number for it.
pub fn said(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// Whether an error only says that the reader of stdout has gone away.
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

/// The name nearest to what was typed, if any is near.
pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    names
        .into_iter()
        .map(|name| {
            let score = strsim::jaro_winkler(&typed, &name.to_lowercase());
            (score, name)
        })
        .filter(|(score, _)| *score > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}
