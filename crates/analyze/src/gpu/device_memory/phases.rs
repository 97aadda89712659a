//! What a block of memory was for, by what the framework was doing when the block
//! was taken and when it was given back.
//!
//! `torch.profiler` can separate parameters from activations by following every
//! tensor; a trace cannot. What it shows is used here: in which phase of a step a
//! block was taken and in which it was given back.
//!
//! That holds of blocks that an operator gets for itself. What a framework's caching allocator takes
//! of the device are segments, which serve any phase that comes later: of them no phase is known.

use tprof_trace::model::{Allocator, DeviceAllocation, SpanKind};

use crate::rank::{HostSpan, Moment, RankTrace, enclosing, nesting_order, parents};

/// What a block was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// Taken before recording began: parameters, optimizer state, and more.
    Before,
    /// Taken and given back within one outermost operator.
    Temporary,
    /// Taken in the forward pass, given back in the backward one, or not at all.
    Activation,
    /// Taken in the forward pass, given back outside of the backward one, or kept past an optimizer's
    /// step.
    Forward,
    /// Taken in the backward pass, and longer there than one operator.
    Gradient,
    /// Taken in the optimizer's step.
    Optimizer,
    /// Taken where no operator ran.
    Other,
}

impl Category {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// All, in order.
    pub const ALL: [Category; Category::COUNT] = [
        Category::Before,
        Category::Temporary,
        Category::Activation,
        Category::Forward,
        Category::Gradient,
        Category::Optimizer,
        Category::Other,
    ];

    /// As reports write it.
    pub fn name(self) -> &'static str {
        match self {
            Category::Before => "before recording",
            Category::Temporary => "temporary",
            Category::Activation => "activations",
            Category::Forward => "forward only",
            Category::Gradient => "gradients",
            Category::Optimizer => "optimizer",
            Category::Other => "other",
        }
    }

    /// What it means, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Category::Before => "taken before recording",
            Category::Temporary => "within one operator",
            Category::Activation => "forward to backward",
            Category::Forward => "forward, not backward",
            Category::Gradient => "backward and later",
            Category::Optimizer => "optimizer's step",
            Category::Other => "outside of operators",
        }
    }
}

/// Part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Forward,
    Backward,
    Optimizer,
    None,
}

/// Operators and annotations around moments.
pub(super) struct EnclosingSpans<'r> {
    operators: &'r [HostSpan],
    parents: Vec<Option<u32>>,
    /// Whether an operator is autograd's, which runs the backward pass.
    backward: Vec<bool>,
    /// Optimizer steps, in nesting order.
    optimizer: Vec<HostSpan>,
}

/// Where an event happened.
#[derive(Clone, Copy, Debug)]
struct EventContext {
    phase: Phase,
    /// Outermost operator.
    root: Option<u32>,
}

impl<'r> EnclosingSpans<'r> {
    pub fn of(rank: &'r RankTrace<'_>) -> EnclosingSpans<'r> {
        let operators = rank.spans(SpanKind::Operator);
        let is_autograd = |span: &HostSpan| rank.name(span.name).starts_with("autograd::engine::");
        let is_step = |span: &&HostSpan| rank.name(span.name).starts_with("Optimizer.step");
        EnclosingSpans {
            operators,
            parents: parents(operators),
            backward: operators.iter().map(is_autograd).collect(),
            optimizer: rank.spans(SpanKind::Annotation).iter().filter(is_step).copied().collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.operators.is_empty()
    }

    /// Whether an optimizer's step began after a moment.
    fn step_after(&self, time_ns: u64) -> bool {
        self.optimizer.iter().any(|step| step.start_ns > time_ns)
    }

    /// Where each event happened.
    fn places(&self, rows: &[&DeviceAllocation]) -> Vec<EventContext> {
        let mut moments: Vec<Moment<usize>> = rows
            .iter()
            .zip(0..)
            .map(|(row, at)| Moment { thread: row.thread, time_ns: row.time_ns, of: at })
            .collect();
        moments.sort_by_key(nesting_order);
        let within = enclosing(self.operators, &moments);
        let stepping = enclosing(&self.optimizer, &moments);
        let mut places = vec![EventContext { phase: Phase::None, root: None }; rows.len()];
        for ((moment, operator), step) in moments.iter().zip(within).zip(stepping) {
            places[moment.of] = self.place(operator, step.is_some());
        }
        places
    }

    fn place(&self, operator: Option<u32>, stepping: bool) -> EventContext {
        let (mut root, mut backward) = (operator, false);
        let mut next = operator;
        while let Some(at) = next {
            root = next;
            backward |= self.backward[at as usize];
            next = self.parents[at as usize];
        }
        let phase = match (stepping, backward, operator) {
            (true, ..) => Phase::Optimizer,
            (_, true, _) => Phase::Backward,
            (.., Some(_)) => Phase::Forward,
            (.., None) => Phase::None,
        };
        EventContext { phase, root }
    }
}

/// Whether an operator gets a block of its own from it, with operators recorded: PyTorch's allocator
/// gets segments of the others, for many blocks.
pub(super) fn gives_blocks(allocator: Allocator) -> bool {
    matches!(allocator, Allocator::Framework | Allocator::Pool)
}

/// Categories of blocks, given the events of one pool and, for each allocation, the
/// index of the event that gave it back. Entries of frees mean nothing.
pub(super) fn categories(
    operators: &EnclosingSpans<'_>,
    rows: &[&DeviceAllocation],
    freed_by: &[Option<u32>],
) -> Vec<Category> {
    let places = operators.places(rows);
    let category = |at: usize| {
        let taken = places[at];
        let given = freed_by[at].map(|free| places[free as usize]);
        let same_root = given.is_some_and(|given| given.root == taken.root);
        match (taken.phase, given.map(|given| given.phase)) {
            (Phase::None, _) => Category::Other,
            (Phase::Optimizer, _) if !same_root => Category::Optimizer,
            _ if same_root && taken.root.is_some() => Category::Temporary,
            (Phase::Optimizer, _) => Category::Optimizer,
            (Phase::Backward, _) => Category::Gradient,
            (Phase::Forward, Some(Phase::Backward)) => Category::Activation,
            // Backward passes give activations back before the optimizer's step: what outlives one is
            // no activation, such as a parameter that was moved to the device.
            (Phase::Forward, None) if !operators.step_after(rows[at].time_ns) => {
                Category::Activation
            }
            (Phase::Forward, _) => Category::Forward,
        }
    };
    (0..rows.len()).map(category).collect()
}
