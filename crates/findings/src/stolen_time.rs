//! Describes the time that other programs took from a rank. The job can't change that time, so it
//! isn't a finding, but a note above all findings.

use tprof_facts::units::percent;

/// The beginning of the note above all findings.
pub const BUSY: &str = "the machine was busy";

/// The part of the driving thread's judged time that other programs took.
#[derive(Clone, Copy, Debug)]
pub(super) struct StolenTime {
    pub ns: u64,
    /// Length of the judged time, ns.
    pub of_ns: u64,
    /// Mean number of the host's processors that were busy with any program, if it was recorded.
    pub busy_cores: Option<f64>,
    /// Mean number of busy processors that this rank used.
    pub own_cores: f64,
}

impl StolenTime {
    pub(super) fn share(&self) -> f64 {
        self.ns as f64 / self.of_ns.max(1) as f64
    }

    /// Formats the note. `of` names the rank, or is empty.
    pub(super) fn banner(&self, of: &str) -> String {
        format!(
            "{BUSY}: {} of the driving thread's time{of} was lost to other programs; wall times \
             below are inflated",
            percent(self.share())
        )
    }
}
