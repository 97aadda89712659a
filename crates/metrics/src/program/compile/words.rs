//! Helpers that the tables of `compile` share: reasons for missing values, counting of functions,
//! finding of compilations by number, and the column of ranks.
//!
//! Here a frame is PyTorch's: one compilation of a function.

use std::collections::BTreeSet;
use tprof_rank::base::sort_rows::SortRows;

use rustc_hash::FxHashMap;
use tprof_document::{Column, RankContext, Unit};
use tprof_facts::compile::NO_LOG;
use tprof_trace::compile_log::CompiledFrame;

use super::per_rank::RankCompiled;

// Reasons for missing cells. In them, "it" is the row's compilation, function or graph break.

pub(super) const NO_FIGURE: &str = "this PyTorch's log has no such figure";
pub(super) const NO_CLOCK: &str = "nothing joins the log's times to the run's clock";
pub(super) const NO_NAME: &str = "the log does not name it";
pub(super) const NOT_WHOLE: &str = "a part of the log was left out, and the rest has none";
/// The number is that of a compilation, as in [`by_number`].
pub(super) const SEVERAL: &str =
    "functions share this number: torch._dynamo.reset(), or several processes";
pub(super) const NO_REASON: &str = "this PyTorch does not log the reason";
pub(super) const NO_CODE: &str = "the log has not all generated code of it";
pub(super) const NO_GRAPH: &str = "the log has no such graph of it";

/// The compilations, graphs and graph breaks that each rank's log contains.
pub(super) type CompiledParts = [(RankContext, RankCompiled)];

/// Returns the reason why a table has no rows: there is no log, or a part of a log was left out,
/// or, if all logs are whole, `none`.
pub(super) fn empty(parts: &CompiledParts, none: &'static str) -> &'static str {
    let mut with_logs =
        parts.iter().map(|(_, part)| part).filter(|part| !part.logs.is_empty()).peekable();
    if with_logs.peek().is_none() {
        return NO_LOG;
    }
    if with_logs.all(|part| part.is_whole) { none } else { NOT_WHOLE }
}

/// Returns the number of functions that were compiled. If the log doesn't name the function of a
/// compilation, as it may be for one without an end, the compilation's function number identifies
/// the function. It counts only if no named function has that number.
pub(super) fn functions<'a>(frames: impl Iterator<Item = &'a CompiledFrame>) -> usize {
    let function_number = |frame: &CompiledFrame| (frame.id.autograd, frame.id.frame);
    let (named, unnamed): (Vec<_>, Vec<_>) =
        frames.partition(|frame| frame.function.is_some() && frame.file.is_some());
    let known: BTreeSet<_> = named.iter().map(|frame| function_number(frame)).collect();
    let others: BTreeSet<_> = unnamed.into_iter().map(function_number).collect();
    let named: BTreeSet<_> = named.into_iter().map(place).collect();
    named.len() + others.difference(&known).count()
}

/// Returns what identifies a function: name, file and line.
fn place(frame: &CompiledFrame) -> (&Option<String>, &Option<String>, Option<u32>) {
    (&frame.function, &frame.file, frame.line)
}

/// Returns the compilations by number, as PyTorch writes the number (`3/1`). Operators of compiled
/// code have only this number, so it must lead to their function. The value is `None` if
/// compilations of different functions had the number, because then the function is unknown.
///
/// Backward graphs are ignored, because they share the number of their forward graph. A compilation
/// without an end left no code, so it is ignored if one with an end has the same number.
pub(super) fn by_number<'a>(
    frames: impl Iterator<Item = &'a CompiledFrame>,
) -> FxHashMap<String, Option<&'a CompiledFrame>> {
    let mut frames: Vec<_> = frames.filter(|frame| !frame.is_backward).collect();
    // Those with an end come first.
    frames.sort_rows_by_key(|frame| !frame.is_ended);
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

/// Returns the column of ranks. It has a heading, so that the text of the report shows it, only if
/// there are several ranks.
pub(super) fn rank_column(parts: &CompiledParts) -> Column {
    Column::new("rank", if parts.len() > 1 { "rank" } else { "" }, Unit::Text)
}
