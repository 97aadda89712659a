//! Finds the phase of a step in which an event happened, and the operators around it.

use rustc_hash::FxHashSet;
use tprof_rank::{HostSpan, Moment, RankTrace, enclosing, nesting_order, parents};
use tprof_trace::model::{CopyKind, DeviceAllocation, MemoryCopy, SpanKind};

/// A part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Forward,
    Backward,
    Optimizer,
    None,
}

/// The operators and annotations of a rank, used to find those around an event.
pub(super) struct EnclosingSpans<'r> {
    operators: &'r [HostSpan],
    parents: Vec<Option<u32>>,
    /// For each operator, whether it belongs to autograd, which runs the backward pass.
    backward: Vec<bool>,
    /// Times when operators of autograd began, in order.
    backward_starts: Vec<u64>,
    /// Optimizer steps, in nesting order.
    optimizer: Vec<HostSpan>,
    /// Start and end of each optimizer step, in order of start.
    steps: Vec<(u64, u64)>,
    /// Outermost operators in which a call copied from the host to a device.
    copy_from_host: FxHashSet<u32>,
}

/// The context of an event: its phase and operators.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventContext {
    pub phase: Phase,
    /// Index of the outermost operator.
    pub root: Option<u32>,
    /// Index of the optimizer's step.
    pub step: Option<u32>,
    /// Whether a call copies from the host to a device within the outermost operator.
    pub copies_from_host: bool,
}

impl<'r> EnclosingSpans<'r> {
    pub fn of(rank: &'r RankTrace<'_>) -> EnclosingSpans<'r> {
        let operators = rank.spans(SpanKind::Operator);
        let is_autograd = |span: &HostSpan| rank.name(span.name).starts_with("autograd::engine::");
        let is_step = |span: &&HostSpan| rank.name(span.name).starts_with("Optimizer.step");
        let backward: Vec<bool> = operators.iter().map(is_autograd).collect();
        let of_backward = operators.iter().zip(&backward).filter(|(_, backward)| **backward);
        let mut backward_starts: Vec<u64> = of_backward.map(|(span, _)| span.start_ns).collect();
        backward_starts.sort_unstable();
        let optimizer: Vec<HostSpan> =
            rank.spans(SpanKind::Annotation).iter().filter(is_step).copied().collect();
        let mut steps: Vec<(u64, u64)> =
            optimizer.iter().map(|step| (step.start_ns, step.end_ns())).collect();
        steps.sort_unstable();
        let mut spans = EnclosingSpans {
            operators,
            parents: parents(operators),
            backward,
            backward_starts,
            optimizer,
            steps,
            copy_from_host: FxHashSet::default(),
        };
        spans.copy_from_host = spans.roots_of_copies(rank);
        spans
    }

    pub fn is_empty(&self) -> bool {
        self.operators.is_empty()
    }

    /// Returns the number of optimizer steps between an allocation and its free. If the block was
    /// never freed, the last step counts even if it didn't end.
    pub fn whole_steps(&self, taken_ns: u64, given_ns: Option<u64>) -> usize {
        let later = &self.steps[self.steps.partition_point(|(start, _)| *start <= taken_ns)..];
        match given_ns {
            None => later.len(),
            Some(given_ns) => later.iter().take_while(|(_, end)| *end <= given_ns).count(),
        }
    }

    /// Whether the backward pass began between an allocation and its free.
    pub fn backward_begins(&self, taken_ns: u64, given_ns: Option<u64>) -> bool {
        let next = self.backward_starts.partition_point(|start| *start <= taken_ns);
        let next = self.backward_starts.get(next);
        next.is_some_and(|next| given_ns.is_none_or(|given_ns| *next < given_ns))
    }

    /// Whether an optimizer's step began before a moment.
    pub fn is_after_a_step(&self, time_ns: u64) -> bool {
        self.steps.first().is_some_and(|(start, _)| *start < time_ns)
    }

    /// Returns the context of each event.
    pub fn places(&self, rows: &[&DeviceAllocation]) -> Vec<EventContext> {
        let mut moments: Vec<Moment<usize>> = rows
            .iter()
            .zip(0..)
            .map(|(row, at)| Moment { thread: row.thread, time_ns: row.time_ns, of: at })
            .collect();
        moments.sort_by_key(nesting_order);
        let within = enclosing(self.operators, &moments);
        let stepping = enclosing(&self.optimizer, &moments);
        let mut places = vec![self.place(None, None); rows.len()];
        for ((moment, operator), step) in moments.iter().zip(within).zip(stepping) {
            places[moment.of] = self.place(operator, step);
        }
        places
    }

    fn place(&self, operator: Option<u32>, step: Option<u32>) -> EventContext {
        let (root, backward) = self.root(operator);
        let phase = match (step, backward, operator) {
            (Some(_), ..) => Phase::Optimizer,
            (_, true, _) => Phase::Backward,
            (.., Some(_)) => Phase::Forward,
            (.., None) => Phase::None,
        };
        let copies_from_host = root.is_some_and(|root| self.copy_from_host.contains(&root));
        EventContext { phase, root, step, copies_from_host }
    }

    /// Returns the outermost operator around an operator, and whether any of them belongs to
    /// autograd.
    fn root(&self, operator: Option<u32>) -> (Option<u32>, bool) {
        let (mut root, mut backward) = (operator, false);
        let mut next = operator;
        while let Some(at) = next {
            root = next;
            backward |= self.backward[at as usize];
            next = self.parents[at as usize];
        }
        (root, backward)
    }

    /// Returns the outermost operators with a call that copied from the host to a device.
    fn roots_of_copies(&self, rank: &RankTrace<'_>) -> FxHashSet<u32> {
        let copies = rank.file.blocks::<MemoryCopy>().flatten();
        let copies: FxHashSet<u64> = copies
            .filter(|copy| copy.kind == CopyKind::HostToDevice)
            .filter_map(|copy| copy.correlation)
            .collect();
        let calls = rank.calls.iter();
        let mut moments: Vec<Moment<()>> = calls
            .filter(|call| call.correlation.get().is_some_and(|of| copies.contains(&of)))
            .map(|call| Moment { thread: call.thread, time_ns: call.start_ns, of: () })
            .collect();
        moments.sort_by_key(nesting_order);
        let within = enclosing(self.operators, &moments);
        within.filter_map(|operator| self.root(operator).0).collect()
    }
}
