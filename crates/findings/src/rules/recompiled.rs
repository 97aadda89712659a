//! Judges recompilation by PyTorch's log. The log says which function was compiled again and which
//! guard failed.

use std::collections::BTreeMap;

use tprof_facts::compile::ReadLog;
use tprof_facts::units::{count, duration};
use tprof_rank::base::intervals::Cover;
use tprof_trace::compile_log::{CompiledFrame, Recompiled};

use super::compiled::{clear, cover, line_of, logged_ns, places};
use crate::finding::Finding;
use crate::scene::Scene;
use crate::verdict::Verdict;
use crate::words::time;

/// The identity of a function: name, file, line number.
type FunctionKey<'s> = (Option<&'s str>, Option<&'s str>, Option<u32>);
type Again<'s> = (&'s ReadLog, &'s CompiledFrame, &'s Recompiled);

/// Judges the recompilations in the logs of a rank. Each function that was recompiled has one
/// finding.
pub(super) fn judge(scene: &Scene<'_>) -> Verdict {
    let mut functions: BTreeMap<FunctionKey<'_>, Vec<Again<'_>>> = BTreeMap::new();
    let mut unknown = 0_u64;
    for read in &scene.rank.compile.logs {
        let forwards = read.forwards();
        for one in &read.log.recompiled {
            let Some(frame) = forwards.get(&one.id).copied() else {
                unknown += 1;
                continue;
            };
            let function = (frame.function.as_deref(), frame.file.as_deref(), frame.line);
            functions.entry(function).or_default().push((read, frame, one));
        }
    }
    match functions.is_empty() {
        true if unknown > 0 => Verdict::unchecked(
            "the log lacks the compilations to its recompilations",
            "a complete log: `tprof report compile` states what was not kept",
        ),
        true => clear(scene, "the log of torch.compile has no recompilation"),
        false => Verdict::Found(functions.into_values().map(|all| finding(scene, &all)).collect()),
    }
}

fn finding(scene: &Scene<'_>, all: &[Again<'_>]) -> Finding {
    let name = all[0].1.function.as_deref().unwrap_or("a function");
    let frames = || all.iter().map(|(read, frame, _)| (*read, *frame));
    let compiling = cover(frames());
    let later = Cover::of(scene.later_steps.iter().copied());
    let in_steps = compiling.intersection(&later);
    let mut guards: Vec<&str> = all
        .iter()
        .filter_map(|(_, _, one)| one.reasons.first())
        .map(|text| text.as_str())
        .collect();
    guards.sort_unstable();
    guards.dedup();
    let list = match guards.is_empty() {
        true => "this PyTorch does not log the guard".to_owned(),
        false => guards.iter().take(3).copied().collect::<Vec<_>>().join("; "),
    };
    let took = match in_steps.is_empty() {
        true => format!("{} in all", duration(compiling.length())),
        false => format!("{} of steps after the first", time(scene, in_steps.length())),
    };
    let seen = format!(
        "{name} is compiled {} more, {took}. Guards that failed: {list}.",
        match all.len() {
            1 => "once".to_owned(),
            times => format!("{} times", count(times as u64)),
        }
    );
    let finding = scene
        .finding("a compiled function is compiled again")
        .about(name)
        .seen(seen)
        .advice(remedy(&guards))
        .on_line(line_of(all[0].1))
        .at(places(frames()));
    match (in_steps.is_empty(), compiling.is_empty()) {
        (false, _) => finding.bound(in_steps.length()),
        (true, false) => finding.bound(compiling.length()).spent_once(logged_ns(scene)),
        (true, true) => finding.unknown_gain("nothing joins the log's times to the run's clock"),
    }
}

/// Formats the advice for these kinds of guards.
fn remedy(guards: &[&str]) -> String {
    let has =
        |words: &[&str]| guards.iter().any(|guard| words.iter().any(|word| guard.contains(word)));
    let mut parts = Vec::new();
    if has(&["size mismatch", "stride mismatch", ".size()", "shape"]) {
        parts.push(
            "mark the size that changes as dynamic: torch._dynamo.mark_dynamic(x, dim) before the \
             first call, or torch.compile(dynamic=True); or pad to few sizes",
        );
    }
    if has(&["dtype mismatch", "device mismatch", "dispatch key", "requires_grad"]) {
        parts.push("give the function inputs of one type, device and requires_grad: convert them before the call");
    }
    if has(&["rank mismatch"]) {
        parts.push("give it inputs of one number of dimensions");
    }
    if has(&["==", "___check_obj_id", "is None", "___check_type_id"]) {
        parts.push(
            "pass values that change as tensors, or compile one function for each value: Python's \
             numbers, texts and objects are constants of the compiled code",
        );
    }
    if parts.is_empty() {
        parts.push(
            "keep constant what the guard names, or mark it as dynamic (torch._dynamo.mark_dynamic, \
             torch.compile(dynamic=True))",
        );
    }
    let text = parts.join("; ") + ".";
    text[..1].to_uppercase() + &text[1..]
}
