//! Finds the runs of compiled code and their time, by joining operators of the trace with the
//! compile log.
//!
//! PyTorch names the operator around compiled code after the compilation: `Torch-Compiled Region:
//! 3/1`. PyTorch before 2.6 leaves out the number. The backward graph is the function
//! `CompiledFunctionBackward`, which has the sequence number of its forward operator.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::{CallTree, RankTrace};
use tprof_trace::model::NameId;

use crate::program::flops::AutogradLinks;
use crate::program::steps::{compiling, steady};

const REGION: &str = "Torch-Compiled Region";
const BACKWARD: &str = "CompiledFunctionBackward";

/// Identifies compiled code. `id` is the number of the compilation as PyTorch writes it; `None` if
/// the operator has no number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CompiledGraph {
    pub id: Option<Arc<str>>,
    pub is_backward: bool,
}

/// The sums over the runs of compiled code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GraphRuns {
    pub runs: u64,
    /// Time on the host, without compilations and without other compiled code within it, ns.
    pub host_ns: u64,
    /// The part of the host time that lies within steady steps, ns.
    pub in_steps_ns: u64,
    /// Number of kernels, copies and memsets that the code launched.
    pub kernels: u64,
    /// The sum of their durations, ns.
    pub device_ns: u64,
}

/// The compiled code of a rank.
#[derive(Clone, Debug, Default)]
pub(super) struct RankGraphs {
    pub graphs: BTreeMap<CompiledGraph, GraphRuns>,
    /// Length of the steps after warm-up without a compilation, ns; `None` if there are none.
    pub steps_ns: Option<u64>,
    /// Whether the times of compilations are known on the run's clock. If so, the time of runs
    /// excludes compilations.
    pub is_timed: bool,
}

/// Sums up the runs of the compiled code of a rank.
pub(super) fn of_rank(rank: &RankTrace<'_>) -> RankGraphs {
    let tree = rank.operator_tree();
    let mut found = RankGraphs::default();
    let graph_of = graphs_of(rank, tree);
    if graph_of.is_empty() {
        return found;
    }
    let steps = steady(rank, rank.steps());
    let steps = Cover::of(steps.iter().map(|step| step.interval));
    found.steps_ns = (!steps.is_empty()).then(|| steps.length());
    let compiling = compiling(rank);
    found.is_timed = compiling.is_some();
    let compiling = compiling.unwrap_or_default();
    for (at, graph) in &graph_of {
        let sums = found.graphs.entry(graph.clone()).or_default();
        sums.runs += 1;
        for piece in own_pieces(tree, *at, &graph_of) {
            sums.host_ns += piece.length() - compiling.length_within(piece);
            sums.in_steps_ns += steps.length_within(piece);
        }
    }
    for call in 0..rank.calls.len() {
        let work = rank.launches.work_of(call);
        let place = tree.of_call(call).filter(|_| !work.is_empty());
        let graph = place.and_then(|at| tree.outwards(at).find_map(|at| graph_of.get(&at)));
        let Some(sums) = graph.and_then(|graph| found.graphs.get_mut(graph)) else { continue };
        sums.kernels += work.len() as u64;
        sums.device_ns += work.iter().map(|&at| rank.work[at as usize].duration_ns).sum::<u64>();
    }
    found
}

/// Returns the spans of a tree that surround compiled code, each with the number if there is one.
pub(super) fn regions(rank: &RankTrace<'_>, tree: &CallTree) -> BTreeMap<u32, Option<Arc<str>>> {
    let numbers: FxHashMap<NameId, Option<Arc<str>>> = rank
        .file
        .names()
        .filter_map(|(id, name)| Some((id, name.strip_prefix(REGION)?)))
        .map(|(id, rest)| (id, rest.strip_prefix(": ").map(str::trim)))
        .map(|(id, number)| (id, number.filter(|number| !number.is_empty()).map(Arc::from)))
        .collect();
    let spans = tree.spans.iter().zip(0_u32..);
    spans.filter_map(|(span, at)| Some((at, numbers.get(&span.name)?.clone()))).collect()
}

/// Returns the compiled code of each span that is a region or a backward graph.
fn graphs_of(rank: &RankTrace<'_>, tree: &CallTree) -> BTreeMap<u32, CompiledGraph> {
    let regions = regions(rank, tree);
    let mut found: BTreeMap<u32, CompiledGraph> = regions
        .iter()
        .map(|(at, id)| (*at, CompiledGraph { id: id.clone(), is_backward: false }))
        .collect();
    let Some((backward, _)) = rank.file.names().find(|(_, name)| *name == BACKWARD) else {
        return found;
    };
    let links = AutogradLinks::of(rank, tree);
    let forwards = links.forwards(tree);
    let spans = tree.spans.iter().zip(0_u32..).filter(|(span, _)| span.name == backward);
    found.extend(spans.map(|(_, at)| {
        let forward = links.forward(&forwards, at);
        let id = forward.and_then(|at| tree.outwards(at).find_map(|at| regions.get(&at)));
        (at, CompiledGraph { id: id.cloned().flatten(), is_backward: true })
    }));
    found
}

/// Returns the parts of a span in which no other compiled code ran.
fn own_pieces(tree: &CallTree, at: u32, graphs: &BTreeMap<u32, CompiledGraph>) -> Vec<Interval> {
    let whole = &tree.spans[at as usize];
    let mut pieces = Vec::new();
    let mut from = whole.start_ns;
    // Spans of a thread are in order of their beginnings, so inner spans follow the outer span.
    let inner = graphs.range(at + 1..).map(|(inner, _)| &tree.spans[*inner as usize]);
    let is_within = |span: &&tprof_rank::TreeSpan| {
        span.thread == whole.thread && span.start_ns < whole.end_ns()
    };
    for span in inner.take_while(is_within) {
        pieces.push(Interval::new(from, span.start_ns.max(from)));
        from = from.max(span.end_ns());
    }
    pieces.push(Interval::new(from, whole.end_ns().max(from)));
    pieces.retain(|piece| piece.length() > 0);
    pieces
}

#[cfg(test)]
mod tests {
    use tprof_document::{Analysis, Options};
    use tprof_fixture::Fixture;
    use tprof_trace::model::{Kernel, Span, SpanKind};

    use super::super::Compile;
    use super::*;

    /// Adds an operator, with autograd's sequence number if any.
    fn operator(made: &mut Fixture, from: u64, to: u64, name: &str, sequence: Option<u64>) {
        let row = Span {
            start_ns: from,
            duration_ns: to - from,
            kind: SpanKind::Operator,
            sequence,
            ..Span::default()
        };
        made.span(row, name);
    }

    fn kernel(made: &mut Fixture, at: u64, duration_ns: u64, correlation: u64) {
        made.call(0, at, 2, "cudaLaunchKernel", correlation);
        let row = Kernel {
            start_ns: at + 5,
            duration_ns,
            correlation: Some(correlation),
            ..Kernel::default()
        };
        made.kernel(row, "triton_poi_fused_0");
    }

    #[test]
    fn compiled_code_has_its_own_time_and_launches_in_each_direction() {
        let mut made = Fixture::new();
        operator(&mut made, 0, 100, "Torch-Compiled Region: 0/0", None);
        operator(&mut made, 10, 50, "CompiledFunction", Some(7));
        operator(&mut made, 60, 90, "Torch-Compiled Region: 1/0", None);
        kernel(&mut made, 70, 500, 1);
        // The range of the autograd engine has no sequence number.
        operator(
            &mut made,
            200,
            260,
            "autograd::engine::evaluate_function: CompiledFunctionBackward",
            None,
        );
        operator(&mut made, 205, 255, "CompiledFunctionBackward", Some(7));
        kernel(&mut made, 210, 30, 2);
        kernel(&mut made, 300, 40, 3);
        let file = made.finish();
        let found = of_rank(&RankTrace::load(&file, Compile.needs(&Options::default())));
        let graph = |id: &str, is_backward| CompiledGraph { id: Some(id.into()), is_backward };
        let runs = |host_ns, kernels, device_ns| GraphRuns {
            runs: 1,
            host_ns,
            in_steps_ns: 0,
            kernels,
            device_ns,
        };
        let expected = BTreeMap::from([
            (graph("0/0", false), runs(70, 0, 0)),
            (graph("0/0", true), runs(50, 1, 30)),
            (graph("1/0", false), runs(30, 1, 500)),
        ]);
        assert_eq!(found.graphs, expected);
        assert!(!found.is_timed, "there is no log on the run's clock");
    }

    #[test]
    fn regions_without_a_number_are_one_row_of_unknown_code() {
        let mut made = Fixture::new();
        operator(&mut made, 0, 10, "Torch-Compiled Region", None);
        operator(&mut made, 20, 30, "CompiledFunctionBackward", Some(9));
        let file = made.finish();
        let found = of_rank(&RankTrace::load(&file, Compile.needs(&Options::default())));
        let rows: Vec<_> = found
            .graphs
            .iter()
            .map(|(graph, runs)| (graph.id.clone(), graph.is_backward, runs.runs))
            .collect();
        assert_eq!(rows, [(None, false, 1), (None, true, 1)]);
    }
}
