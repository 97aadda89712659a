//! Names of work as keys that are cheap to compare.

use std::borrow::Cow;

use tprof_trace::model::NameId;

use crate::rank::{RankTrace, Work, WorkKind};

/// The name of work; the kind tells copies without a name apart.
pub type WorkName = (NameId, WorkKind);

/// Returns the key of a piece of work.
pub fn work_name(work: &Work) -> WorkName {
    (work.name, work.kind)
}

/// Returns the displayed name of a key.
pub fn name_of<'a>(rank: &RankTrace<'a>, (name, kind): WorkName) -> Cow<'a, str> {
    rank.name_of_work(name, kind)
}
