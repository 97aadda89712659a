//! Time between the two graphs of a function that has a break: Python runs, and no compiled code.
//!
//! The code behind a break is a function of its own, which resumes the other, and is compiled for itself:
//! its operator lies within that of the function. Where gradients are recorded, the graph before
//! the break is an operator, too, and what lies between these two is the break.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::graphs::{Graph, compiled_spans};
use crate::base::intervals::{Cover, Interval};
use crate::program::steps::compiling;
use crate::rank::RankTrace;

/// The compiled graph of a function whose gradients are recorded.
const GRAPH: &str = "CompiledFunction";
/// What the names of functions begin with that resume another.
const RESUMED: &str = "torch_dynamo_resume_in_";

/// A line of source: file and number.
pub(crate) type BreakLine = (String, u32);

/// Time between graphs by the line of the break, without compilations. A break whose graphs are no
/// operators of the trace is not in it.
pub(crate) fn gaps(rank: &RankTrace<'_>) -> BTreeMap<BreakLine, Cover> {
    let lines = resumed(rank);
    let mut found: BTreeMap<BreakLine, Vec<Interval>> = BTreeMap::new();
    let Some(compiling) = compiling(rank).filter(|_| !lines.is_empty()) else {
        return BTreeMap::new();
    };
    let tree = rank.operator_tree();
    let spans = compiled_spans(rank, tree);
    // The end of the last graph directly within each span of compiled code.
    let mut graph_end: FxHashMap<u32, u64> = FxHashMap::default();
    for (span, at) in tree.spans.iter().zip(0_u32..) {
        let Some(caller) = tree.caller(at).filter(|caller| spans.contains_key(caller)) else {
            continue;
        };
        if rank.name(span.name) == GRAPH {
            graph_end.insert(caller, span.end_ns());
            continue;
        }
        let id = spans.get(&at).and_then(|graph: &Graph| graph.id.as_ref());
        let (Some(line), Some(end)) = (id.and_then(|id| lines.get(id)), graph_end.remove(&caller))
        else {
            continue;
        };
        found.entry(line.clone()).or_default().push(Interval::new(end, span.start_ns));
    }
    let cover = |all: Vec<Interval>| Cover::of(all).without(&compiling);
    found.into_iter().map(|(line, all)| (line, cover(all))).collect()
}

/// The line of the break before each compilation that resumes a function, by its number.
fn resumed(rank: &RankTrace<'_>) -> FxHashMap<String, BreakLine> {
    let frames = rank.compile.logs.iter().flat_map(|read| &read.log.frames);
    let resumed = frames.filter(|frame| {
        !frame.is_backward && frame.function.as_ref().is_some_and(|name| name.starts_with(RESUMED))
    });
    let of = resumed.filter_map(|frame| {
        Some((frame.id.to_string(), (frame.file.clone()?, frame.line?)))
    });
    of.collect()
}
