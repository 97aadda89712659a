//! What ran, as a key that is cheap to compare.

use std::borrow::Cow;

use tprof_trace::model::NameId;

use crate::rank::{RankTrace, Work, WorkKind};

/// What ran: its name, and its kind for a copy that has none.
pub type WorkName = (NameId, WorkKind);

/// What a piece of work ran.
pub fn work_name(work: &Work) -> WorkName {
    (work.name, work.kind)
}

/// Its name.
pub fn name_of<'a>(rank: &RankTrace<'a>, (name, kind): WorkName) -> Cow<'a, str> {
    rank.name_of_work(name, kind)
}
