//! Steps, and the things that show them.

use tprof_trace::model::{NameId, ProcessIndex, SpanKind, SpanOutline};

/// A training step of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// The beginning on the host, ns.
    pub start_ns: u64,
    /// The end on the host, ns.
    pub end_ns: u64,
    /// Index of its process.
    pub process: ProcessIndex,
    /// The number that its source gave it; if there is none, its place, from 0.
    pub number: u64,
}

/// Batches that a data loader handed out, beside updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    /// Batches of most steps; more than one if gradients are accumulated.
    pub a_step: usize,
    /// Updates of a group of optimizers in most steps; more than one where several share a batch.
    pub updates: usize,
    /// Batches in no step and of no skipped update: those of validation, or at ends of epochs; if
    /// no gradient scaler was recorded, perhaps those of updates that one skipped.
    pub outside: usize,
}

/// The marks or updates that show steps by following each other: for `n` in a process, one side of
/// a step is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Updates or marks that were recorded; of updates that share a batch one.
    pub recorded: usize,
    /// Number of these that belong to no step.
    pub open: usize,
}

/// The repetition that unnamed steps were inferred from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The thing that repeats.
    pub what: Repeated,
    /// Number of these in a step.
    pub length: usize,
    /// The share of all that are in a step, 0 to 1; of a graph's launches the share of the time of all work.
    pub share: f64,
}

/// The thing that repeats from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeated {
    /// Launches of kernels, copies and memsets, by the kernels' names and by kinds and bytes.
    Launches,
    /// Operations between ranks on the host, by their names and sizes.
    Operations,
    /// Launches of one CUDA graph, each of which is a step.
    Graph,
}

/// A range or operator that may be a step, or shows one.
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
    /// Takes the range from a span.
    pub fn of(span: &SpanOutline) -> StepRange {
        let end_ns = span.start_ns.saturating_add(span.duration_ns);
        let SpanOutline { kind, name, process, start_ns, .. } = *span;
        StepRange { kind, name, process, start_ns, end_ns }
    }
}
