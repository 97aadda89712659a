//! Defines the types of steps and of the facts from which steps are found.

use tprof_trace::model::{NameId, ProcessIndex, SpanKind, SpanOutline};

/// A training step of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// The beginning on the host, ns.
    pub start_ns: u64,
    /// The end on the host, ns.
    pub end_ns: u64,
    /// Index of the step's process.
    pub process: ProcessIndex,
    /// The step's number according to its source, or else its index, from 0.
    pub number: u64,
}

/// Batches that a data loader handed out, compared with updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    /// Number of batches in most steps; it is above one if gradients are accumulated.
    pub a_step: usize,
    /// Number of updates of a group of optimizers in most steps; it is above one if several updates
    /// use one batch.
    pub updates: usize,
    /// Number of batches that belong to no step and no skipped update. They are those of validation
    /// or of the ends of epochs. If no gradient scaler was recorded, they may also be those of
    /// skipped updates.
    pub outside: usize,
}

/// The number of marks or updates that delimit steps. A step lies between two of them, so there is
/// one more of them than steps in each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Number of recorded updates or marks. Updates that share a batch count once.
    pub recorded: usize,
    /// Number of these that show no step.
    pub open: usize,
}

/// The repetition from which unnamed steps were inferred.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The thing that repeats.
    pub what: Repeated,
    /// Number of repeated things in a step.
    pub length: usize,
    /// The share of these things that lie in steps, 0 to 1. For launches of a graph, the share of
    /// the time of all work.
    pub share: f64,
}

/// The thing that repeats from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeated {
    /// Launches of kernels with the same names, and of copies and memsets with the same kind and
    /// size.
    Launches,
    /// Operations between ranks on the host with the same names and sizes.
    Operations,
    /// Launches of one CUDA graph, each of which is a step.
    Graph,
}

/// A range or operator that may be a step or show one.
#[derive(Clone, Copy, Debug)]
pub struct StepRange {
    /// The kind: annotation, NVTX or operator.
    pub kind: SpanKind,
    /// Name of the range.
    pub name: NameId,
    /// Index of its process.
    pub process: ProcessIndex,
    /// The beginning of the range, ns.
    pub start_ns: u64,
    /// The end of the range, ns.
    pub end_ns: u64,
}

impl StepRange {
    /// Creates the range of a span.
    pub fn of(span: &SpanOutline) -> StepRange {
        let end_ns = span.start_ns.saturating_add(span.duration_ns);
        let SpanOutline { kind, name, process, start_ns, .. } = *span;
        StepRange { kind, name, process, start_ns, end_ns }
    }
}
