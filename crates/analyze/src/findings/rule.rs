//! The interface of a rule.

use super::scene::Scene;
use super::verdict::Verdict;

/// A question that is put to each rank.
pub(super) trait Rule: Sync {
    /// Name, as reports write it.
    fn name(&self) -> &'static str;

    /// Judges one rank and returns a verdict.
    fn judge(&self, scene: &Scene<'_>) -> Verdict;
}
