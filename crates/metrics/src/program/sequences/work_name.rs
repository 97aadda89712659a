//! Identifies the name of a piece of work by a key that is cheap to compare.

use std::borrow::Cow;

use tprof_rank::{RankTrace, Work, WorkKind};
use tprof_trace::model::NameId;

/// The key: the interned name, and the kind, which distinguishes copies without a name.
pub type WorkName = (NameId, WorkKind);

/// Returns the key of a piece of work.
pub fn work_name(work: &Work) -> WorkName {
    (work.name, work.kind)
}

/// Returns the displayed name of a key.
pub fn name_of<'a>(rank: &RankTrace<'a>, (name, kind): WorkName) -> Cow<'a, str> {
    rank.name_of_work(name, kind)
}
