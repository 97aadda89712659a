//! Finds the kernels that the runs of an operator launched, in the order in which they ran.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use tprof_rank::{CallTree, RankTrace};
use tprof_trace::model::{NameId, SpanKind};

use super::work_name::{WorkName, name_of, work_name};
use super::{Pattern, Patterns};

/// Sequences with fewer kernels than this are ignored: one or two kernels aren't a pattern.
pub const FEWEST_KERNELS: usize = 3;

/// Chooses the runs of operators that count.
#[derive(Clone, Copy, Debug)]
pub enum Roots<'a> {
    /// Operators that no other operator called.
    Outermost,
    /// Operators whose name contains this text and that lie in no other such operator.
    Containing(&'a str),
    /// The choice of Holistic Trace Analysis: of the spans whose name contains this text, those at
    /// the smallest depth at which one occurs.
    Shallowest(&'a str),
}

/// Returns the sequences of the chosen operators' runs, with the number and durations of the runs.
pub fn patterns(rank: &RankTrace, tree: &CallTree, roots: Roots) -> Patterns {
    let root_of = root_of_each(rank, tree, roots);
    let mut launched: Vec<(u32, u32)> = Vec::new();
    for call in 0..rank.calls.len() {
        let root = tree.of_call(call).and_then(|at| root_of[at as usize]);
        if let Some(root) = root {
            launched.extend(rank.launches.work_of(call).iter().map(|&work| (root, work)));
        }
    }
    // Work is in order of time, so sorting by index puts a run's kernels in order.
    launched.sort_unstable();
    let mut found: FxHashMap<(NameId, Vec<WorkName>), Pattern> = FxHashMap::default();
    for run in launched.chunk_by(|a, b| a.0 == b.0).filter(|run| run.len() >= FEWEST_KERNELS) {
        let root = &tree.spans[run[0].0 as usize];
        let work = || run.iter().map(|&(_, at)| &rank.work[at as usize]);
        let key = (root.name, work().map(work_name).collect());
        let pattern = found.entry(key).or_default();
        pattern.runs += 1;
        pattern.device_ns += work().map(|work| work.duration_ns).sum::<u64>();
        pattern.host_ns += root.duration_ns;
        pattern.kernels = run.len();
    }
    let mut patterns = Patterns::default();
    for ((root, kernels), pattern) in found {
        let names: Vec<Cow<str>> =
            kernels.iter().map(|&work_name| name_of(rank, work_name)).collect();
        let key = (rank.name(root).to_owned(), names.join(" | "));
        patterns.entry(key).or_default().add(&pattern);
    }
    patterns
}

/// Returns for each span the chosen operator (root) around it, or the span itself if it is one.
fn root_of_each(rank: &RankTrace, tree: &CallTree, roots: Roots) -> Vec<Option<u32>> {
    let mut passes: FxHashMap<NameId, bool> = FxHashMap::default();
    let mut is_candidate = |at: usize| match roots {
        Roots::Outermost => tree.spans[at].kind == SpanKind::Operator,
        Roots::Containing(text) | Roots::Shallowest(text) => {
            let span = &tree.spans[at];
            let kind = span.kind == SpanKind::Operator || matches!(roots, Roots::Shallowest(_));
            kind && *passes.entry(span.name).or_insert_with(|| rank.name(span.name).contains(text))
        }
    };
    let candidates: Vec<bool> = (0..tree.spans.len()).map(&mut is_candidate).collect();
    let least = (0..tree.spans.len()).filter(|&at| candidates[at]).map(|at| tree.depth(at as u32));
    let least = least.min().unwrap_or(0);
    // Callers come before the spans that they call, so a caller's root is known before its callees
    // need it.
    let mut root_of: Vec<Option<u32>> = Vec::with_capacity(tree.spans.len());
    for (at, is_candidate) in (0_u32..).zip(candidates) {
        let above = tree.caller(at).and_then(|caller| root_of[caller as usize]);
        let may_be = match roots {
            Roots::Shallowest(_) => tree.depth(at) == least,
            _ => above.is_none(),
        };
        root_of.push(above.or_else(|| (is_candidate && may_be).then_some(at)));
    }
    root_of
}
