//! Derives the purpose of a block of memory from what the framework was doing when the block was
//! allocated and when it was freed.
//!
//! `torch.profiler` can separate parameters from activations because it follows every tensor. A
//! trace can't, but it shows the phase of a step in which a block was allocated and the phase in
//! which it was freed. This module derives the purpose from these two phases.
//!
//! This works for blocks that an operator allocates for itself. Segments don't have a phase: a
//! framework's caching allocator takes them from the device once and uses them in any later phase.

use tprof_rank::{HostSpan, Moment, RankTrace, enclosing, nesting_order, parents};
use tprof_trace::model::{Allocator, DeviceAllocation, SpanKind};

/// The purpose of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// Allocated before recording began: parameters, optimizer state, and more.
    Before,
    /// Allocated and freed within one outermost operator.
    Temporary,
    /// Allocated in the forward pass, and freed in the backward pass or never.
    Activation,
    /// Allocated in the forward pass, and freed outside of the backward pass or kept past an
    /// optimizer's step.
    Forward,
    /// Allocated in the backward pass, and kept there longer than one operator.
    Gradient,
    /// Allocated in the optimizer's step.
    Optimizer,
    /// Allocated where no operator ran.
    Other,
}

impl Category {
    /// Number of categories.
    pub const COUNT: usize = 7;

    /// All categories, in the order of tables.
    pub const ALL: [Category; Category::COUNT] = [
        Category::Before,
        Category::Temporary,
        Category::Activation,
        Category::Forward,
        Category::Gradient,
        Category::Optimizer,
        Category::Other,
    ];

    /// The name that reports print.
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

    /// Explains the category in a few words.
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

/// A part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
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
    /// Optimizer steps, in nesting order.
    optimizer: Vec<HostSpan>,
}

/// The context of an event: its phase and operators.
#[derive(Clone, Copy, Debug)]
struct EventContext {
    phase: Phase,
    /// Index of the outermost operator.
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

    /// Returns the context of each event.
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

/// Whether this allocator serves single blocks to operators, so that a block has a phase. PyTorch
/// allocates segments for many blocks from the other allocators.
pub(super) fn gives_blocks(allocator: Allocator) -> bool {
    matches!(allocator, Allocator::Framework | Allocator::Pool)
}

/// Returns the category of each block. `rows` are the events of one pool, and `freed_by` has for
/// each allocation the index of the event that freed it. Entries for frees have no meaning.
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
            // The backward pass frees activations before the optimizer's step. A block that
            // outlives such a step isn't an activation, but for example a parameter that was moved
            // to the device.
            (Phase::Forward, None) if !operators.step_after(rows[at].time_ns) => {
                Category::Activation
            }
            (Phase::Forward, _) => Category::Forward,
        }
    };
    (0..rows.len()).map(category).collect()
}
