//! Joins backward operators with their forward operators, and finds out which operators recompute.
//!
//! An autograd function has the sequence number of the forward operator whose gradients it
//! computes. If an operator within such a function also has a number, it ran with gradients
//! enabled. So it belongs to a forward pass that is recomputed (activation checkpointing). There is
//! one exception: if all operators of the function have numbers, gradients of gradients are being
//! computed.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_facts::flops::NODE_PREFIX;
use tprof_rank::{CallTree, RankTrace, TreeSpan};
use tprof_trace::model::{NameId, SequencedSpan, SpanKind};

/// Stands for a missing index of a span.
const NONE: u32 = u32::MAX;

/// The autograd function that recomputes a part of a forward pass and then computes its gradients.
const CHECKPOINT: &str = "CheckpointFunctionBackward";

/// The places of a tree's spans in the backward pass, and their sequence numbers.
#[derive(Default)]
pub(crate) struct AutogradLinks {
    /// The place of each span; empty if there is no backward pass.
    places: Vec<GradPlace>,
    /// Autograd's sequence numbers, by index of the span.
    numbers: FxHashMap<u32, u64>,
    /// Autograd functions that contain operators both with and without a number.
    mixed: FxHashSet<u32>,
}

#[derive(Clone, Copy)]
struct GradPlace {
    /// The outermost autograd function around the span.
    outermost: u32,
    /// The innermost autograd function around the span.
    innermost: u32,
    /// Whether the span, or an operator around it within the innermost function, has a number.
    is_numbered: bool,
}

impl AutogradLinks {
    pub fn of(rank: &RankTrace<'_>, tree: &CallTree) -> AutogradLinks {
        let is_node = |(_, name): &(NameId, &str)| name.starts_with(NODE_PREFIX);
        let nodes: FxHashMap<NameId, &str> = rank.file.names().filter(is_node).collect();
        let mut joined = AutogradLinks::default();
        if nodes.is_empty() {
            return joined;
        }
        joined.numbers = numbers(rank, tree);
        joined.places.reserve(tree.spans.len());
        for (span, at) in tree.spans.iter().zip(0_u32..) {
            let nowhere = GradPlace { outermost: NONE, innermost: NONE, is_numbered: false };
            let caller = tree.caller(at);
            let around = caller.map_or(nowhere, |caller| joined.places[caller as usize]);
            if let Some(name) = nodes.get(&span.name) {
                let outermost = if around.outermost == NONE { at } else { around.outermost };
                joined.places.push(GradPlace { outermost, innermost: at, is_numbered: false });
                if name.ends_with(CHECKPOINT) {
                    joined.mixed.insert(at);
                }
                continue;
            }
            // The function's own operator, directly below the engine's range, has the number of its
            // forward operator.
            let is_function = around.innermost == NONE || caller == Some(around.innermost);
            let number = joined.numbers.get(&at).copied().filter(|_| is_function);
            if let (Some(number), Some(range)) =
                (number, caller.filter(|_| around.innermost != NONE))
            {
                // Some versions of PyTorch don't number the engine's range, so it gets the number
                // of its function.
                joined.numbers.entry(range).or_insert(number);
            }
            let has_number = !is_function && joined.numbers.contains_key(&at);
            let place = GradPlace { is_numbered: around.is_numbered || has_number, ..around };
            let is_plain = span.kind == SpanKind::Operator
                && !is_function
                && !place.is_numbered
                && rank.name(span.name).starts_with("aten::");
            if is_plain {
                joined.mixed.insert(around.innermost);
            }
            joined.places.push(place);
        }
        joined
    }

    /// Whether a span belongs to a forward pass that is recomputed within the backward pass.
    pub fn recomputes(&self, at: u32) -> bool {
        let place = self.places.get(at as usize);
        place.is_some_and(|place| place.is_numbered && self.mixed.contains(&place.innermost))
    }

    /// Returns the forward operator whose gradients a span helps to compute.
    pub fn forward(&self, forwards: &FxHashMap<u64, u32>, at: u32) -> Option<u32> {
        let outermost = self.places.get(at as usize)?.outermost;
        forwards.get(self.numbers.get(&outermost)?).copied()
    }

    /// Returns the last forward operator with each number. Numbers that several threads share are
    /// left out.
    pub fn forwards(&self, tree: &CallTree) -> FxHashMap<u64, u32> {
        let thread = |at: u32| tree.spans[at as usize].thread;
        let mut found: FxHashMap<u64, Option<u32>> = FxHashMap::default();
        for (&at, &number) in &self.numbers {
            if self.places[at as usize].outermost != NONE {
                continue;
            }
            let known = found.entry(number).or_insert(Some(at));
            // Later spans and inner spans have higher indices, so the highest index is the last,
            // innermost operator.
            *known = known.filter(|known| thread(*known) == thread(at)).map(|known| known.max(at));
        }
        found.into_iter().filter_map(|(number, at)| Some((number, at?))).collect()
    }
}

/// Returns autograd's sequence numbers by span of the tree.
fn numbers(rank: &RankTrace<'_>, tree: &CallTree) -> FxHashMap<u32, u64> {
    let mut numbers: FxHashMap<(u32, u64, NameId), u64> = FxHashMap::default();
    for block in rank.file.blocks::<SequencedSpan>() {
        for row in block.iter().filter(|row| row.kind == SpanKind::Operator) {
            if let Some(number) = row.sequence {
                numbers.insert((row.thread, row.start_ns, row.name), number);
            }
        }
    }
    let number = |(span, at): (&TreeSpan, u32)| {
        let number = numbers.get(&(span.thread, span.start_ns, span.name));
        Some((at, *number.filter(|_| span.kind == SpanKind::Operator)?))
    };
    tree.spans.iter().zip(0..).filter_map(number).collect()
}
