//! What tables of `compile` share: reasons for what is missing, and the column of ranks.

use tprof_facts::compile::NO_LOG;

use super::of_rank::RankCompiled;
use crate::document::{Column, RankAt, Unit};

pub(super) const NO_END: &str = "the log ends before this compilation";
pub(super) const NO_FIGURE: &str = "this PyTorch's log has no such figure";
pub(super) const NO_CLOCK: &str = "nothing joins the log's times to the run's clock";
pub(super) const NO_NAME: &str = "the log does not name it";
pub(super) const NO_REASON: &str = "this PyTorch does not log the reason";
pub(super) const NO_CODE: &str = "the log has not all generated code of it";
pub(super) const NO_GRAPH: &str = "the log has no such graph of it";

pub(super) type CompiledParts = [(RankAt, RankCompiled)];

/// What a table without rows states: that there is no log, or none of it in the log.
pub(super) fn empty(parts: &CompiledParts, none: &'static str) -> &'static str {
    if parts.iter().all(|(_, part)| part.logs.is_empty()) { NO_LOG } else { none }
}

/// Shown where there are several.
pub(super) fn rank_column(parts: &CompiledParts) -> Column {
    Column::new("rank", if parts.len() > 1 { "rank" } else { "" }, Unit::Text)
}
