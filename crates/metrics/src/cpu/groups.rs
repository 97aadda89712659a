//! Sums the time on a core in each step or range, by function.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_rank::samples::{CpuTrace, Func, Layer, Stack};

use super::steps::Label;

/// Time of a function within a step or range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelfAndTotal {
    /// Time in the function itself, ns.
    pub self_ns: u64,
    /// Time with the function anywhere on the stack, ns.
    pub total_ns: u64,
}

/// Time of a step or range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Time in which this is the innermost step or range, ns.
    pub self_ns: u64,
    /// Number of samples behind `self_ns`.
    pub self_samples: u64,
    /// Time within the step or range and within those inside it, ns.
    pub total_ns: u64,
    /// Number of samples behind `total_ns`.
    pub total_samples: u64,
    /// The part of `self_ns` of each function. A sample counts for the innermost function that the
    /// user knows.
    pub mostly: FxHashMap<Func, u64>,
    /// The part of `total_ns` of each function; empty if it was not requested.
    pub functions: FxHashMap<Func, SelfAndTotal>,
}

/// Time by step or by range; the key `None` is for time outside of all.
pub type Groups = BTreeMap<Option<Label>, Group>;

impl Group {
    pub(super) fn add_self(&mut self, trace: &CpuTrace, stack: &Stack, sum: (u64, u64)) {
        self.self_ns += sum.0;
        self.self_samples += sum.1;
        if let Some(func) = representative_or_kernel(trace, &stack.functions) {
            *self.mostly.entry(func).or_default() += sum.0;
        }
    }

    pub(super) fn add_functions(&mut self, trace: &CpuTrace, stack: &Stack, ns: u64) {
        let mut seen = FxHashSet::default();
        for (at, id) in stack.functions.iter().enumerate() {
            let innermost = at == 0;
            let first = seen.insert(*id);
            if first || innermost {
                let within = self.functions.entry(trace.names.get(*id).clone()).or_default();
                within.self_ns += if innermost { ns } else { 0 };
                within.total_ns += if first { ns } else { 0 };
            }
        }
    }

    pub(super) fn add_total(&mut self, sum: (u64, u64)) {
        self.total_ns += sum.0;
        self.total_samples += sum.1;
    }

    pub(super) fn add(&mut self, other: Group) {
        self.self_ns += other.self_ns;
        self.self_samples += other.self_samples;
        self.total_ns += other.total_ns;
        self.total_samples += other.total_samples;
        for (func, ns) in other.mostly {
            *self.mostly.entry(func).or_default() += ns;
        }
        for (func, more) in other.functions {
            let within = self.functions.entry(func).or_default();
            within.self_ns += more.self_ns;
            within.total_ns += more.total_ns;
        }
    }
}

fn representative_or_kernel(trace: &CpuTrace, stack: &[u32]) -> Option<Func> {
    let mut functions = stack.iter().map(|id| trace.names.get(*id));
    representative(functions.clone())
        .or_else(|| functions.find(|f| f.layer == Layer::Kernel))
        .cloned()
}

/// Returns the function that tells the user most: the innermost Python function, otherwise the
/// innermost native function.
pub(super) fn representative<'a>(
    stack: impl Iterator<Item = &'a Func> + Clone,
) -> Option<&'a Func> {
    let python = stack.clone().find(|f| f.layer == Layer::Python);
    python.or_else(|| stack.clone().find(|f| f.layer == Layer::Native))
}
