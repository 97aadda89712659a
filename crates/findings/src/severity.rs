//! Derives the severity of findings from the share of a step that a fix may gain.

/// The smallest share of a step that a fix must gain for a finding.
pub(super) const LEAST_SHARE: f64 = 0.01;

/// Severities, each with the smallest share of a step that it needs. If steps vary by a few
/// percent, an A/B test can't show a smaller gain than the last one.
const SEVERITIES: [(f64, Severity); 4] = [
    (0.25, Severity::Critical),
    (0.10, Severity::High),
    (0.03, Severity::Medium),
    (0.01, Severity::Low),
];

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Severity {
    /// Less than 1 % of a step.
    Note,
    /// From 1 % of a step on.
    Low,
    /// From 3 % of a step on.
    Medium,
    /// From 10 % of a step on.
    High,
    /// From a quarter of a step on.
    Critical,
}

impl Severity {
    /// Returns the severity of a bound that is this share of a step.
    pub(super) fn of(share: f64) -> Severity {
        let at_least = |(from, _): &&(f64, Severity)| share >= *from;
        SEVERITIES.iter().find(at_least).map_or(Severity::Note, |(_, severity)| *severity)
    }

    /// Returns the word that reports print.
    pub(super) fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Low => "low",
            Severity::Medium => "medium",
            Severity::High => "high",
            Severity::Critical => "critical",
        }
    }
}
