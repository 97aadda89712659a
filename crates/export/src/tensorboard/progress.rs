//! Remembers what an event file contains, so that more can be appended to it.

use std::collections::{HashMap, HashSet};

use super::analysis::CounterKey;

/// Content of an event file.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Tags whose description was written.
    pub described: HashSet<String>,
    /// Time up to which each tag's points were written, in seconds since 1970.
    pub until_s: HashMap<String, f64>,
    /// Whether the model's graph was written.
    pub has_graph: bool,
    /// Names of counters' curves. A curve keeps its name even if other processes with the same
    /// counter appear later.
    pub names: HashMap<CounterKey, String>,
}

/// The part of a rank's data to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Everything of a run that has ended.
    Whole,
    /// The settled part of a run in progress.
    SoFar,
    /// The missing part of a run that has ended.
    Rest,
}
