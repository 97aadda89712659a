//! What tables of `compile` share: reasons for what is missing, and the column of ranks.

use rustc_hash::FxHashMap;
use tprof_facts::compile::NO_LOG;
use tprof_trace::compile_log::CompiledFrame;

use super::of_rank::RankCompiled;
use crate::document::{Column, RankAt, Unit};

pub(super) const NO_END: &str = "the log has no end of this compilation";
pub(super) const NO_FIGURE: &str = "this PyTorch's log has no such figure";
pub(super) const NO_CLOCK: &str = "nothing joins the log's times to the run's clock";
pub(super) const NO_NAME: &str = "the log does not name it";
pub(super) const NOT_WHOLE: &str = "a part of the log was left out, and the rest has none";
pub(super) const SEVERAL: &str =
    "functions share this number: torch._dynamo.reset(), or several processes";
pub(super) const NO_REASON: &str = "this PyTorch does not log the reason";
pub(super) const NO_CODE: &str = "the log has not all generated code of it";
pub(super) const NO_GRAPH: &str = "the log has no such graph of it";

pub(super) type CompiledParts = [(RankAt, RankCompiled)];

/// What a table without rows states: that there is no log, or none of it in the log.
pub(super) fn empty(parts: &CompiledParts, none: &'static str) -> &'static str {
    match () {
        () if parts.iter().all(|(_, part)| part.logs.is_empty()) => NO_LOG,
        () if parts.iter().any(|(_, part)| !part.logs.is_empty() && !part.is_whole) => NOT_WHOLE,
        () => none,
    }
}

/// The compilation of each number as PyTorch writes it, without backward graphs; none of one that
/// different functions had, since operators of compiled code have no more than the number.
pub(super) fn by_number<'a>(
    frames: impl Iterator<Item = &'a CompiledFrame>,
) -> FxHashMap<String, Option<&'a CompiledFrame>> {
    let place = |frame: &'a CompiledFrame| (&frame.function, &frame.file, frame.line);
    let mut found: FxHashMap<String, Option<&CompiledFrame>> = FxHashMap::default();
    for frame in frames.filter(|frame| !frame.is_backward) {
        let known = found.entry(frame.id.as_numbered().to_string()).or_insert(Some(frame));
        if known.is_some_and(|known| place(known) != place(frame)) {
            *known = None;
        }
    }
    found
}

/// Shown where there are several.
pub(super) fn rank_column(parts: &CompiledParts) -> Column {
    Column::new("rank", if parts.len() > 1 { "rank" } else { "" }, Unit::Text)
}
