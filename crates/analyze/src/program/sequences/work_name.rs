//! Names of work as keys that are cheap to compare.

use std::borrow::Cow;

use tprof_trace::model::NameId;

use crate::rank::{RankTrace, Work, WorkKind};

/// The name of the work, and its kind for a copy without a name.
pub type WorkName = (NameId, WorkKind);

/// The key of a piece of work.
pub fn work_name(work: &Work) -> WorkName {
    (work.name, work.kind)
}

/// The displayed name of a key.
pub fn name_of<'a>(rank: &RankTrace<'a>, (name, kind): WorkName) -> Cow<'a, str> {
    rank.name_of_work(name, kind)
}
