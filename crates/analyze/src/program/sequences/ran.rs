//! What ran, as a key that is cheap to compare.

use tprof_trace::model::NameId;

use crate::rank::{RankTrace, Work, WorkKind, copy_name};

/// What ran: its name, and its kind for a copy that has none.
pub type Ran = (NameId, WorkKind);

/// What a piece of work ran.
pub fn ran(work: &Work) -> Ran {
    (work.name, work.kind)
}

/// Its name: a kernel's; a copy's as its source wrote it, or its direction.
pub fn name_of<'a>(rank: &RankTrace<'a>, ran: Ran) -> &'a str {
    match ran {
        (NameId(0), WorkKind::Copy(kind)) => copy_name(kind),
        (name, _) => rank.file.name(name),
    }
}
