//! GraphBreak: a function that `torch.compile` splits into several graphs.

use std::collections::BTreeMap;

use tprof_facts::units::counted;
use tprof_metrics::program::compile::gaps;
use tprof_rank::base::intervals::Cover;
use tprof_trace::compile_log::{CompiledFrame, GraphBreak as Break};

use super::compiled::{clear, no_log};
use crate::finding::{Finding, SourceLine};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;
use crate::words::time;

/// The rule that judges graph breaks, at which a graph ends within a function.
pub(super) struct GraphBreak;

/// A graph break, and the compilation in which it happened.
type BreakOf<'s> = (&'s Break, Option<&'s CompiledFrame>);

/// Reasons why the time between two graphs is unknown.
const NO_CLOCK: &str = "no whole log of torch.compile is on the run's clock";
const NO_OPERATORS: &str = "the trace has no operators of the graphs around the break";
/// Maximum number of breaks that have a finding of their own. The findings mention the total
/// number.
const MOST: usize = 8;

impl Rule for GraphBreak {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "GraphBreak",
            found_if: "the log of `torch.compile` has a graph break",
            gain: "from the end of the graph before the break to the code behind it, without \
                   compilations; missing where operators do not show them",
            needs: "a log of `torch.compile`",
            remedy: "what PyTorch's hint says of the line",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = no_log(scene) {
            return verdict;
        }
        type BreakPlace<'s> = (&'s Option<String>, Option<u32>);
        let mut lines: BTreeMap<BreakPlace<'_>, Vec<BreakOf<'_>>> = BTreeMap::new();
        for read in &scene.rank.compile.logs {
            let forwards = read.forwards();
            for one in &read.log.graph_breaks {
                let of = forwards.get(&one.compile_id).copied();
                lines.entry((&one.file, one.line)).or_default().push((one, of));
            }
        }
        if lines.is_empty() {
            return clear(scene, "the log of torch.compile has no graph break");
        }
        let all = lines.len();
        let gaps = gaps(scene.rank);
        let finding = |((file, line), breaks): (BreakPlace<'_>, Vec<BreakOf<'_>>)| {
            let at = file.clone().zip(line);
            let gap = gaps
                .as_ref()
                .ok_or(NO_CLOCK)
                .and_then(|gaps| at.and_then(|at| gaps.get(&at)).ok_or(NO_OPERATORS));
            one(scene, file, line, &breaks, all, gap.map(|gap| gap.intersection(&scene.window)))
        };
        Verdict::Found(lines.into_iter().take(MOST).map(finding).collect())
    }
}

fn one(
    scene: &Scene<'_>,
    file: &Option<String>,
    line: Option<u32>,
    breaks: &[BreakOf<'_>],
    all: usize,
    gap: Result<Cover, &'static str>,
) -> Finding {
    let (first, frame) = breaks[0];
    let function = frame.and_then(|frame| frame.function.as_deref()).unwrap_or("a function");
    let reason = first.reason.as_deref().unwrap_or("this PyTorch does not log the reason");
    let between = gap
        .as_ref()
        .map(|gap| format!(" Between the two graphs, Python takes {}.", time(scene, gap.length())));
    let seen = format!(
        "{function} is left for Python {}: {}.{} The run has breaks at {}.",
        counted(breaks.len() as u64, "time while it is compiled", "times while it is compiled"),
        reason.trim_end_matches('.'),
        between.unwrap_or_default(),
        counted(all as u64, "line", "lines"),
    );
    let advice = match first.hints.first() {
        Some(hint) => hint.clone(),
        None => {
            "Find it with TORCH_LOGS=graph_breaks or torch.compile(fullgraph=True); move prints, \
                 .item() and branches on data out of the compiled function."
                .to_owned()
        }
    };
    let place = SourceLine {
        function: function.to_owned(),
        file: file.clone().unwrap_or_default(),
        line: line.unwrap_or(0),
    };
    let name = match (file, line) {
        (Some(file), Some(line)) => format!("{}:{}", tprof_facts::labels::base_name(file), line),
        _ => function.to_owned(),
    };
    let mut finding = scene
        .finding("a compiled function is split into several graphs")
        .about(name)
        .seen(seen)
        .advice(advice)
        .on_line(Some(place));
    match gap {
        Ok(gap) => {
            // A break costs more than its gap, because it prevents fusing the two graphs or putting
            // them into one CUDA graph. So the finding stays even if the gap is short.
            finding.keep = true;
            finding.bound(gap.length())
        }
        Err(why) => finding.unknown_gain(why),
    }
}
