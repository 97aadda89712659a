//! The interface of a rule.

use super::scene::Scene;
use super::verdict::Verdict;

/// The texts that document a rule. `docs/metrics.md` lists those of all rules.
#[derive(Clone, Copy, Debug)]
pub struct RuleAbout {
    /// Its name, as reports write it.
    pub name: &'static str,
    /// When it finds something.
    pub found_if: &'static str,
    /// The upper bound of what a fix gains, and why it is one.
    pub gain: &'static str,
    /// Without which data it is not checked.
    pub needs: &'static str,
    /// A short remedy; each finding states it in full.
    pub remedy: &'static str,
}

/// A question that is put to each rank.
pub(super) trait Rule: Sync {
    /// Its name, and what it asks.
    fn about(&self) -> RuleAbout;

    /// Judges one rank and returns a verdict.
    fn judge(&self, scene: &Scene<'_>) -> Verdict;
}
