//! The resolved options of a run.

use super::given::Source;
use super::schedule::ScheduleParts;
use std::collections::BTreeMap;
use tprof_collect::Config;

/// Options of a run, including those that only the launcher needs.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// Configuration of the collector.
    pub config: Config,
    /// The parts of the schedule and the capture, as they were given.
    pub parts: ScheduleParts,
    /// Format to write after the run.
    pub export: Option<String>,
    /// Whether to print no summary.
    pub quiet: bool,
    /// Source of each setting; settings with the default value are absent.
    pub sources: BTreeMap<&'static str, Source>,
}

impl Resolved {
    /// Whether a setting was given on the command line.
    pub fn is_from_command_line(&self, name: &str) -> bool {
        self.sources.get(name) == Some(&Source::Flag)
    }
}
