//! The options of a run, resolved.

use super::given::Source;
use super::schedule::ScheduleParts;
use std::collections::BTreeMap;
use tprof_collect::Config;

/// Options of a run, with what only the launcher needs.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// What the collector needs.
    pub config: Config,
    /// What the schedule and the capture were made of.
    pub parts: ScheduleParts,
    /// Format to write after the run.
    pub export: Option<String>,
    /// Print no summary.
    pub quiet: bool,
    /// Where each setting came from; absent for a default.
    pub sources: BTreeMap<&'static str, Source>,
}

impl Resolved {
    /// Whether a setting comes from the command line itself.
    pub fn was_typed(&self, name: &str) -> bool {
        self.sources.get(name) == Some(&Source::Flag)
    }
}
