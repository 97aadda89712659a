//! Shared by the tables of `compile`: reasons for missing values, and the column of ranks.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use tprof_facts::compile::NO_LOG;
use tprof_trace::compile_log::CompiledFrame;

use super::per_rank::RankCompiled;
use crate::document::{Column, RankContext, Unit};

pub(super) const NO_FIGURE: &str = "this PyTorch's log has no such figure";
pub(super) const NO_CLOCK: &str = "nothing joins the log's times to the run's clock";
pub(super) const NO_NAME: &str = "the log does not name it";
pub(super) const NOT_WHOLE: &str = "a part of the log was left out, and the rest has none";
pub(super) const SEVERAL: &str =
    "functions share this number: torch._dynamo.reset(), or several processes";
pub(super) const NO_REASON: &str = "this PyTorch does not log the reason";
pub(super) const NO_CODE: &str = "the log has not all generated code of it";
pub(super) const NO_GRAPH: &str = "the log has no such graph of it";

pub(super) type CompiledParts = [(RankContext, RankCompiled)];

/// The statement of a table without rows: there is no log, or the log has none of these rows.
pub(super) fn empty(parts: &CompiledParts, none: &'static str) -> &'static str {
    let mut with_logs =
        parts.iter().map(|(_, part)| part).filter(|part| !part.logs.is_empty()).peekable();
    if with_logs.peek().is_none() {
        return NO_LOG;
    }
    if with_logs.all(|part| part.is_whole) { none } else { NOT_WHOLE }
}

/// Number of functions that were compiled. The log may lack the name of a function whose
/// compilation has no end: it is the function that PyTorch gave its number to, and not another one.
pub(super) fn functions<'a>(frames: impl Iterator<Item = &'a CompiledFrame>) -> usize {
    let number = |frame: &CompiledFrame| (frame.id.autograd, frame.id.frame);
    let (named, unnamed): (Vec<_>, Vec<_>) =
        frames.partition(|frame| frame.function.is_some() && frame.file.is_some());
    let known: BTreeSet<_> = named.iter().map(|frame| number(frame)).collect();
    let others: BTreeSet<_> = unnamed.into_iter().map(number).collect();
    let named: BTreeSet<_> = named.into_iter().map(place).collect();
    named.len() + others.difference(&known).count()
}

/// The identity of a function.
fn place(frame: &CompiledFrame) -> (&Option<String>, &Option<String>, Option<u32>) {
    (&frame.function, &frame.file, frame.line)
}

/// The compilation of each number as PyTorch writes it, without backward graphs; `None` for a
/// number that different functions had, since operators of compiled code only have the number. A
/// compilation without an end has left no code if another one of its number has an end.
pub(super) fn by_number<'a>(
    frames: impl Iterator<Item = &'a CompiledFrame>,
) -> FxHashMap<String, Option<&'a CompiledFrame>> {
    let mut frames: Vec<_> = frames.filter(|frame| !frame.is_backward).collect();
    frames.sort_by_key(|frame| !frame.is_ended);
    let mut found: FxHashMap<String, Option<&CompiledFrame>> = FxHashMap::default();
    for frame in frames {
        let known = found.entry(frame.id.as_numbered().to_string()).or_insert(Some(frame));
        let differs = |known: &CompiledFrame| {
            known.is_ended == frame.is_ended && place(known) != place(frame)
        };
        if known.is_some_and(differs) {
            *known = None;
        }
    }
    found
}

/// Shown where there are several.
pub(super) fn rank_column(parts: &CompiledParts) -> Column {
    Column::new("rank", if parts.len() > 1 { "rank" } else { "" }, Unit::Text)
}
