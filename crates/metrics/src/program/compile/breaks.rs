//! Measures the time that graph breaks cost: the time between the two graphs of a function with a
//! break, in which Python runs instead of compiled code.
//!
//! PyTorch turns the code after a break into a separate function that resumes the first one, and
//! compiles it separately. In a trace, the operator of the second function lies within the operator
//! of the first. If gradients are recorded, the graph before the break is an operator, too. So the
//! break is the time between the operator of that graph and the operator of the second function.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_rank::RankTrace;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_trace::compile_log::CompiledFrame;

use super::graphs::regions;
use super::words::by_number;
use crate::program::steps::compiling;

/// The operator of a compiled graph whose gradients are recorded.
const GRAPH: &str = "CompiledFunction";
/// Prefix of the names of functions that resume another function after a break.
const RESUMED: &str = "torch_dynamo_resume_in_";

/// A line of source: file and line number.
pub(crate) type BreakLine = (String, u32);

/// Returns the time between graphs, without compilations, by the line of the break. Breaks whose
/// graphs aren't operators of the trace are left out. Returns `None` if it isn't known when
/// functions were compiled.
pub fn gaps(rank: &RankTrace<'_>) -> Option<BTreeMap<BreakLine, Cover>> {
    let compiling = compiling(rank)?;
    let lines = resumed(rank);
    let mut found: BTreeMap<BreakLine, Vec<Interval>> = BTreeMap::new();
    let tree = rank.operator_tree();
    let regions = regions(rank, tree);
    // For each span of compiled code, the end of the last graph directly within it.
    let mut graph_end: FxHashMap<u32, u64> = FxHashMap::default();
    for (span, at) in tree.spans.iter().zip(0_u32..) {
        let Some(caller) = tree.caller(at).filter(|caller| regions.contains_key(caller)) else {
            continue;
        };
        if rank.name(span.name) == GRAPH {
            graph_end.insert(caller, span.end_ns());
            continue;
        }
        let Some(Some(id)) = regions.get(&at) else { continue };
        let Some(line) = lines.get(&**id) else { continue };
        let Some(end) = graph_end.remove(&caller) else { continue };
        found.entry(line.clone()).or_default().push(Interval::new(end, span.start_ns));
    }
    let cover = |all: Vec<Interval>| Cover::of(all).without(&compiling);
    Some(found.into_iter().map(|(line, all)| (line, cover(all))).collect())
}

/// Returns, for each compilation that resumes a function, the line of the break before it. The key
/// is the compilation's number.
fn resumed(rank: &RankTrace<'_>) -> FxHashMap<String, BreakLine> {
    let frames = by_number(rank.compile.logs.iter().flat_map(|read| &read.log.frames));
    let line = |frame: &CompiledFrame| {
        let resumes = frame.function.as_ref().is_some_and(|name| name.starts_with(RESUMED));
        Some((frame.file.clone()?, frame.line?)).filter(|_| resumes)
    };
    let of = frames.into_iter().filter_map(|(number, frame)| Some((number, line(frame?)?)));
    of.collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tprof_facts::compile::RankCompile;
    use tprof_fixture::Fixture;
    use tprof_rank::Needs;
    use tprof_trace::model::{Span, SpanKind};

    use super::*;

    #[test]
    fn a_break_lasts_from_the_graph_before_it_to_the_code_after_it() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../trace/tests/compile/torch-2.15.log.zst");
        let compile = RankCompile::of_logs_at(&[path], Some(0));
        let log = &compile.logs[0].log;
        // A moment long after all compilations, so that none lies in the break. The program's
        // function `breaks` runs, and within it the code after its first break.
        let at = log.extent_unix_us.unwrap().1 * 1000 + 1_000_000;
        let resumes = log.frames.iter().find(|frame| frame.id.to_string() == "1/0").unwrap();
        assert_eq!(resumes.line, Some(14));
        let mut made = Fixture::new();
        for step in [0, 1000] {
            for (from, to, name) in [
                (0, 500, "Torch-Compiled Region: 0/0"),
                (10, 100, "CompiledFunction"),
                (105, 110, "aten::item"),
                (130, 400, "Torch-Compiled Region: 1/0"),
            ] {
                let row = Span {
                    start_ns: at + step + from,
                    duration_ns: to - from,
                    kind: SpanKind::Operator,
                    ..Span::default()
                };
                made.span(row, name);
            }
        }
        let file = made.finish();
        let mut rank = RankTrace::load(&file, Needs::OPERATORS | Needs::CALLS);
        rank.compile = compile;
        let gaps: Vec<_> =
            gaps(&rank).unwrap().into_iter().map(|((_, line), gap)| (line, gap.length())).collect();
        assert_eq!(gaps, [(14, 60)]);
        rank.compile = RankCompile::default();
        assert!(super::gaps(&rank).is_none());
    }
}
