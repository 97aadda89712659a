//! What an event file has already, so that more can be appended to it.

use std::collections::{HashMap, HashSet};

use super::analysis::CounterKey;

/// What is in an event file.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Tags that have their description.
    pub described: HashSet<String>,
    /// By tag, the time up to which its points are there, seconds since 1970.
    pub until_s: HashMap<String, f64>,
    /// Whether the model's graph is there.
    pub has_graph: bool,
    /// What curves of counters are called: one keeps its name, whichever processes come later.
    pub names: HashMap<CounterKey, String>,
}

/// How much of a rank is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of a run that has ended.
    Whole,
    /// What is settled of one that goes on.
    SoFar,
    /// What is not there yet, when it has ended.
    Rest,
}
