//! Severity of findings, by the share of a step that a fix may gain.

/// Least share of a step that a finding must be able to gain.
pub(super) const LEAST_SHARE: f64 = 0.01;

/// Severities with the least share of a step for each. Gains below the last one can't be shown by
/// an A/B test if steps vary by a few percent.
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
