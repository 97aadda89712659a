//! Defines the figures and texts of reports that the export writes into event files. The caller
//! makes the reports.

use std::collections::HashMap;

/// What a run's event files contain of its reports: figures of each rank, and texts about the run.
#[derive(Clone, Debug, Default)]
pub struct RunAnalysis {
    /// Figures by rank. The keys are those of [`tprof_facts::labels::rank`].
    pub ranks: HashMap<String, RankFigures>,
    /// Texts about the whole run as Markdown, by tag.
    pub texts: Vec<(String, String)>,
}

/// Figures of a rank's steps.
#[derive(Clone, Debug, Default)]
pub struct RankFigures {
    /// The figures of each step.
    pub steps: Vec<StepFigures>,
    /// The mean of each counter in each step in which it was read.
    pub counters: Vec<StepCounter>,
}

/// The figures of a step: its device time by purpose, and its launches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepFigures {
    /// Number of the step.
    pub number: u64,
    /// When it began, nanoseconds since the run began.
    pub start_ns: u64,
    /// The figures whose values are known, each with its value in the unit that [`Figure`] states.
    pub values: Vec<(Figure, f64)>,
}

/// A figure of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Time with compute, ns.
    Compute,
    /// Time with communication but no compute, ns.
    ExposedCommunication,
    /// Time with copies but neither compute nor communication, ns.
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
    /// Mean over the time of the step, in the counter's unit.
    pub mean: f64,
}

/// Identifies a counter of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterKey {
    /// Name of the counter.
    pub name: String,
    /// Process id, if the counter belongs to a process.
    pub pid: Option<u32>,
    /// Number of the device, if the counter belongs to a device.
    pub device: Option<u32>,
}
