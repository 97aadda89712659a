//! What reports know of a run that an event file has too.

use std::collections::HashMap;

/// Figures of ranks, and texts.
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
    /// What the time of each step was for.
    pub steps: Vec<StepFigures>,
    /// Each counter in each step.
    pub counters: Vec<StepCounter>,
}

/// What the time of a step was for on devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepFigures {
    /// Its number.
    pub number: u64,
    /// When it began, nanoseconds since the run began.
    pub start_ns: u64,
    /// Values, none of what is unknown.
    pub values: Vec<(Figure, f64)>,
}

/// A figure of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Compute, ns.
    Compute,
    /// Communication without compute, ns.
    ExposedCommunication,
    /// Copies without either, ns.
    ExposedCopies,
    /// Nothing on a device, ns.
    Idle,
    /// The share of the step with anything on a device, 0 to 1.
    Busy,
    /// Kernels and copies.
    Launches,
}

/// A counter in a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepCounter {
    /// Number of the step.
    pub step: u64,
    /// Whose it is.
    pub counter: CounterKey,
    /// Mean over time.
    pub mean: f64,
}

/// A counter of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterKey {
    /// Name.
    pub name: String,
    /// Process id, if it is of one.
    pub pid: Option<u32>,
    /// Device, if it is of one.
    pub device: Option<u32>,
}
