//! Defines the interface of a rule, which judges each rank for one kind of problem.

use super::scene::Scene;
use super::verdict::Verdict;

/// Texts that document a rule. `docs/metrics.md` lists them for all rules.
#[derive(Clone, Copy, Debug)]
pub struct RuleAbout {
    /// Name of the rule, as reports print it.
    pub name: &'static str,
    /// The condition under which the rule finds something.
    pub found_if: &'static str,
    /// The upper bound of a fix's gain, and why it is an upper bound.
    pub gain: &'static str,
    /// The data without which the rule is not checked.
    pub needs: &'static str,
    /// The remedy in a few words. Each finding explains it in full.
    pub remedy: &'static str,
}

/// A rule, which judges each rank for one kind of problem.
pub(super) trait Rule: Sync {
    /// Returns the rule's documentation.
    fn about(&self) -> RuleAbout;

    /// Judges one rank and returns a verdict.
    fn judge(&self, scene: &Scene<'_>) -> Verdict;
}
