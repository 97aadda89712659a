//! Measures the cost of each operator of a rank: its own host time, and the work that it launched.

use rustc_hash::FxHashMap;
use tprof_rank::{CallTree, RankTrace, TreeSpan};
use tprof_trace::model::{NameId, SpanKind};

use super::costs::{Cost, Launched, OperatorCosts};
use crate::program::sequences::{WorkName, work_name};

/// Returns the costs by operator, and the launches by operator and by the kernels that one run of
/// it launched.
///
/// A call belongs to the innermost operator around it on its thread. Launched work is a kernel, a
/// copy or a memset.
pub(super) fn count(rank: &RankTrace, tree: &CallTree) -> OperatorCosts {
    let mut costs: FxHashMap<NameId, Cost> = FxHashMap::default();
    add_host_time(tree, &mut costs);
    let mut sequences: FxHashMap<(NameId, Vec<WorkName>), Launched> = FxHashMap::default();
    let mut unowned = 0;
    for (operator, launches) in launches_by_operator(rank, tree, &mut unowned) {
        let span = &tree.spans[operator as usize];
        let work = || launches.iter().map(|&(_, work)| &rank.work[work as usize]);
        let device_ns = work().map(|work| work.duration_ns).sum::<u64>();
        let kernels: Vec<WorkName> = work().map(work_name).collect();
        for at in tree.outwards(operator) {
            let around = &tree.spans[at as usize];
            if around.kind == SpanKind::Operator {
                costs.entry(around.name).or_default().device_total_ns += device_ns;
            }
        }
        let cost = costs.entry(span.name).or_default();
        cost.device_ns += device_ns;
        let (call, work) = launches[0];
        let first = &rank.calls[call as usize];
        let run = Launched::of(span.start_ns, first, rank.work[work as usize].start_ns);
        cost.kernels += launches.len() as u64;
        cost.launched.add(&run);
        sequences.entry((span.name, kernels)).or_default().add(&run);
    }
    OperatorCosts::named(rank, costs, sequences, unowned)
}

/// Adds the number of runs, and the total and own host time. An operator's own time excludes the
/// operators that it called. Spans of other kinds between the two operators don't matter.
fn add_host_time(tree: &CallTree, costs: &mut FxHashMap<NameId, Cost>) {
    let is_operator = |span: &TreeSpan| span.kind == SpanKind::Operator;
    for (span, at) in tree.spans.iter().zip(0..).filter(|(span, _)| is_operator(span)) {
        let outer = tree.outwards(at).skip(1).find(|&at| is_operator(&tree.spans[at as usize]));
        let cost = costs.entry(span.name).or_default();
        cost.runs += 1;
        cost.total_ns += span.duration_ns;
        cost.own_ns += span.duration_ns as i64;
        if let Some(outer) = outer {
            let caller = costs.entry(tree.spans[outer as usize].name).or_default();
            caller.own_ns -= span.duration_ns as i64;
        }
    }
}

/// Returns for each operator that launched work the pairs of call and work, as indices, in order of
/// the calls. Adds to `unowned` the number of pieces of work whose call lies in no operator.
fn launches_by_operator(
    rank: &RankTrace,
    tree: &CallTree,
    unowned: &mut u64,
) -> Vec<(u32, Vec<(u32, u32)>)> {
    let mut owned: Vec<(u32, u32, u32)> = Vec::new();
    for call in 0..rank.calls.len() {
        let work = rank.launches.work_of(call);
        if work.is_empty() {
            continue;
        }
        let place = tree.of_call(call);
        match place.and_then(|at| tree.innermost(at, SpanKind::Operator)) {
            Some(operator) => owned.extend(work.iter().map(|&at| (operator, call as u32, at))),
            None => *unowned += work.len() as u64,
        }
    }
    owned.sort_unstable();
    owned
        .chunk_by(|a, b| a.0 == b.0)
        .map(|runs| (runs[0].0, runs.iter().map(|&(_, call, work)| (call, work)).collect()))
        .collect()
}
