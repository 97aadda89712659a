//! Helpers that the tables of `compile` share: reasons for missing values, counting of functions,
//! and the column of ranks.

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

/// Returns the text of a table without rows: there is no log, or the logs have no such rows.
pub(super) fn empty(parts: &CompiledParts, none: &'static str) -> &'static str {
    let mut with_logs =
        parts.iter().map(|(_, part)| part).filter(|part| !part.logs.is_empty()).peekable();
    if with_logs.peek().is_none() {
        return NO_LOG;
    }
    if with_logs.all(|part| part.is_whole) { none } else { NOT_WHOLE }
}

/// Returns the number of functions that were compiled. A compilation without an end may have no
/// function name in the log. Then it belongs to the function with the same number, which doesn't
/// count again.
pub(super) fn functions<'a>(frames: impl Iterator<Item = &'a CompiledFrame>) -> usize {
    let number = |frame: &CompiledFrame| (frame.id.autograd, frame.id.frame);
    let (named, unnamed): (Vec<_>, Vec<_>) =
        frames.partition(|frame| frame.function.is_some() && frame.file.is_some());
    let known: BTreeSet<_> = named.iter().map(|frame| number(frame)).collect();
    let others: BTreeSet<_> = unnamed.into_iter().map(number).collect();
    let named: BTreeSet<_> = named.into_iter().map(place).collect();
    named.len() + others.difference(&known).count()
}

/// Returns what identifies a function: name, file and line.
fn place(frame: &CompiledFrame) -> (&Option<String>, &Option<String>, Option<u32>) {
    (&frame.function, &frame.file, frame.line)
}

/// Returns the compilation with each number as PyTorch writes it, ignoring backward graphs. The
/// value is `None` if different functions had the number: operators of compiled code have only the
/// number, so it is unknown which function they belong to. If several compilations have a number,
/// those without an end are ignored, because they left no code.
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

/// The column of ranks, which has a heading only if there are several ranks.
pub(super) fn rank_column(parts: &CompiledParts) -> Column {
    Column::new("rank", if parts.len() > 1 { "rank" } else { "" }, Unit::Text)
}
