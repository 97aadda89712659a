//! Results of reports that an event file contains.

use std::collections::HashMap;

/// Figures of ranks, and texts about the run.
#[derive(Clone, Debug, Default)]
pub struct RunAnalysis {
    /// Ranks, as [`tprof_facts::labels::rank`] names them.
    pub ranks: HashMap<String, RankFigures>,
    /// Texts of the whole run as Markdown, by tag.
    pub texts: Vec<(String, String)>,
}

/// Figures of a rank's steps.
#[derive(Clone, Debug, Default)]
pub struct RankFigures {
    /// Time of each step by purpose.
    pub steps: Vec<StepFigures>,
    /// Each counter in each step.
    pub counters: Vec<StepCounter>,
}

/// Device time of a step by purpose.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepFigures {
    /// Number of the step.
    pub number: u64,
    /// When it began, nanoseconds since the run began.
    pub start_ns: u64,
    /// Known values only.
    pub values: Vec<(Figure, f64)>,
}

/// A figure of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Time with compute, ns.
    Compute,
    /// Time with communication but no compute, ns.
    ExposedCommunication,
    /// Time with copies but neither of those, ns.
    ExposedCopies,
    /// Time with nothing on a device, ns.
    Idle,
    /// The share of the step with anything on a device, 0 to 1.
    Busy,
    /// Number of kernels and copies.
    Launches,
}

/// Value of a counter in a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepCounter {
    /// Number of the step.
    pub step: u64,
    /// The counter and its owner.
    pub counter: CounterKey,
    /// Mean over the time of the step.
    pub mean: f64,
}

/// Identifies a counter of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterKey {
    /// Name of the counter.
    pub name: String,
    /// Process id, if it belongs to one.
    pub pid: Option<u32>,
    /// Device, if it belongs to one.
    pub device: Option<u32>,
}
