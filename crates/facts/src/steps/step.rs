//! What a step is, and what shows one.

use tprof_trace::model::{NameId, ProcessIndex, SpanKind, SpanOutline};

/// A training step of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// When it began on the host, ns.
    pub start_ns: u64,
    /// When it was over, ns.
    pub end_ns: u64,
    /// Its process.
    pub process: ProcessIndex,
    /// Its number as its source gave it; without one, its place, from 0.
    pub number: u64,
}

/// Batches that a data loader handed out, beside updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    /// Of most steps; more than one where gradients are accumulated.
    pub a_step: usize,
    /// Updates of a group of optimizers in most steps; more than one where several share a batch.
    pub updates: usize,
    /// In no step and of no skipped update: of validation, or at ends of epochs; where no gradient scaler
    /// was recorded, perhaps of updates that one skipped.
    pub outside: usize,
}

/// What shows steps by following each other: of `n` in a process, one side of a step is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Updates or marks that were recorded; of updates that share a batch one.
    pub recorded: usize,
    /// Of these, how many are of no step.
    pub open: usize,
}

/// What steps that nothing names were inferred from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// What repeats.
    pub what: Repeated,
    /// How many of these are a step.
    pub length: usize,
    /// The share of all that are in a step, 0 to 1; of a graph's launches the share of the time of all work.
    pub share: f64,
}

/// What repeats from step to step.
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
    /// Of what kind: annotation, NVTX or operator.
    pub kind: SpanKind,
    /// What it is called.
    pub name: NameId,
    /// Its process.
    pub process: ProcessIndex,
    /// When it began, ns.
    pub start_ns: u64,
    /// When it was over, ns.
    pub end_ns: u64,
}

impl StepRange {
    /// Of a span.
    pub fn of(span: &SpanOutline) -> StepRange {
        let end_ns = span.start_ns.saturating_add(span.duration_ns);
        let SpanOutline { kind, name, process, start_ns, .. } = *span;
        StepRange { kind, name, process, start_ns, end_ns }
    }
}
