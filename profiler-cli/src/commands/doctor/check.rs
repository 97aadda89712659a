//! One thing that `tprof doctor` checks.

use serde::Serialize;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Works.
    Ok,
    /// Works in part; the run lists the gap.
    Part,
    /// Does not work.
    No,
    /// Worth knowing.
    Note,
}

/// One thing that was checked.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What, in a word or two.
    pub name: &'static str,
    /// How it came out.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do; `null` where there is nothing to.
    pub hint: Option<String>,
}

impl Check {
    /// A check without a hint.
    pub fn new(name: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { name, verdict, found: found.into(), hint: None }
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
