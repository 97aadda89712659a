//! Recompilation: code is compiled, or loaded onto the device, in steps after the first.

use rustc_hash::FxHashSet;
use tprof_facts::units::count;
use tprof_rank::HostSpan;
use tprof_rank::base::intervals::Cover;
use tprof_trace::model::SpanKind;

use super::recompiled;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;
use crate::words::{short, time};

/// The rule that judges compilation after the first step.
pub(super) struct Recompilation;

/// Parts of the names of ranges and Python functions that compile, in Dynamo, AOTAutograd, Inductor
/// and Triton. Ranges in which compiled code runs have other names (`CompiledFunction`,
/// `Torch-Compiled Region`).
const RANGES: [&str; 9] = [
    "compile_inner",
    "entire_frame_compile",
    "compile_fx_inner",
    "call_user_compiler",
    "backend_compile",
    "async_compile",
    "triton/compiler/compiler.py",
    "torch/_dynamo/convert_frame.py",
    "XlaCompile",
];
/// Beginnings of the names of calls that compile or load code.
const CALLS: [&str; 6] = [
    "cuModuleLoad",
    "cuLibraryLoad",
    "cuLinkComplete",
    "nvrtcCompile",
    "hipModuleLoad",
    "hiprtcCompile",
];

impl Rule for Recompilation {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "Recompilation",
            found_if: "Dynamo, Inductor, Triton, XLA or NVRTC compile, or modules load, after the first \
                 step; by a log of `torch.compile`, a function is compiled again",
            gain: "time of these ranges and calls; with a log, of compilations in steps after the \
                   first, else of all, once",
            needs: "two steps; a record that would show it",
            remedy: "mark sizes as dynamic, pad to few shapes, warm up before the first timed step",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        // Ranges and calls show only that code is compiled. PyTorch's log also says which code, and
        // why, so prefer the log.
        if !scene.rank.compile.logs.is_empty() {
            return recompiled::judge(scene);
        }
        let ranges = scene.spans_named(
            &[
                SpanKind::Annotation,
                SpanKind::Nvtx,
                SpanKind::Operator,
                SpanKind::Python,
                SpanKind::Other,
            ],
            |name| RANGES.iter().any(|part| name.contains(part)),
        );
        let calls = scene.calls_named(|name| CALLS.iter().any(|start| name.starts_with(start)));
        let calls = calls.iter().map(|&at| &scene.rank.calls[at]);
        let spans: Vec<&HostSpan> = ranges.into_iter().chain(calls).collect();
        let later = Cover::of(scene.later_steps.iter().copied());
        let measure = later.measure();
        let within: Vec<&HostSpan> =
            spans.iter().filter(|span| measure.within(span.interval()) > 0).copied().collect();
        if within.is_empty() {
            return nothing(scene, &spans);
        }
        let cover = Cover::of(within.iter().map(|span| span.interval())).intersection(&later);
        let names: FxHashSet<&str> = within.iter().map(|s| scene.rank.name(s.name)).collect();
        let mut names: Vec<String> = names.into_iter().map(short).collect();
        names.sort();
        names.truncate(3);
        let seen = format!(
            "Code is compiled or loaded {} times after the first step, {} of host time: {}.",
            count(within.len() as u64),
            time(scene, cover.length()),
            names.join(", "),
        );
        Verdict::Found(vec![
            scene
                .finding("code is compiled again in later steps")
                .seen(seen)
                .advice(
                    "List failing guards with `tprof run --compile` or TORCH_LOGS=recompiles. Mark changing sizes as \
                     dynamic (torch.compile(dynamic=True), mark_dynamic), pad to few shapes, warm \
                     up before the first timed step.",
                )
                .bound(cover.length())
                .at(within.iter().map(|span| scene.span_place(span))),
        ])
    }
}

/// Returns the verdict if no compilation was found: either nothing was compiled, or the recording
/// can't show compilation.
fn nothing(scene: &Scene<'_>, compiled: &[&HostSpan]) -> Verdict {
    if scene.later_steps.is_empty() {
        let steps = if scene.steps == 0 { "no steps" } else { "one step" };
        return Verdict::unchecked(
            format!("{steps}: later compilation cannot be separated from the first"),
            "two steps or more (torch.profiler's schedule, or marks of steps)",
        );
    }
    let has_driver = scene.rank.calls.iter().any(|call| call.kind == SpanKind::Driver);
    let has_python = !scene.rank.spans(SpanKind::Python).is_empty();
    match has_driver || has_python || !compiled.is_empty() {
        true => Verdict::no_problem("no step after the first compiles or loads code"),
        false => Verdict::unchecked(
            "the trace has no calls or ranges that show compilation",
            "CUDA driver calls (loading of modules), Python functions (with_stack=True), or Dynamo \
             ranges",
        ),
    }
}
