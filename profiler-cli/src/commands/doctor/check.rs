//! A single check of `tprof doctor`.

use serde::Serialize;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The feature works completely.
    Ok,
    /// The feature works in part. Runs list the missing part.
    Part,
    /// The feature does not work.
    No,
    /// The check is only information.
    Note,
}

/// A check and its result.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Subject of the check in a word or two.
    pub name: &'static str,
    /// Result of the check.
    pub verdict: Verdict,
    /// Description of what was found.
    pub found: String,
    /// Suggested action; `None` if there is none.
    pub hint: Option<String>,
}

impl Check {
    /// Creates a check without a hint.
    pub fn new(name: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { name, verdict, found: found.into(), hint: None }
    }

    /// Adds a suggested action.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
