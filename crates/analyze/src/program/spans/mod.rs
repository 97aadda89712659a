//! `spans`: time, allocations and operations of the spans that a program names itself.
//!
//! What a span's thread allocated between its push and its pop is exact: both lie in the ring of
//! that thread, in order with its allocations, or carry what it has counted. What the thread did
//! then is from records of its switches, and from samples; what it launched, by correlation.

mod allocated;
mod bounded;
mod find;
mod launched;
mod open;
mod pauses;
mod per_rank;
mod sums;
mod tables;
#[cfg(test)]
mod tests;
mod time;

use crate::document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use crate::rank::{Needs, RankTrace};
use sums::SumsByName;

/// The kind.
pub const KIND: DocumentKind = DocumentKind {
    name: "spans",
    about: "spans of the program's own: time, allocations, FLOP/s",
    analysis: || boxed(Spans),
};

/// `tprof report spans`.
struct Spans;

impl Analysis for Spans {
    const KIND: &'static str = KIND.name;
    const HTA: bool = false;
    type Part = SumsByName;

    fn needs(&self, _: &Options) -> Needs {
        Needs::STEPS | Needs::SAMPLES | Needs::WORK | Needs::CALLS | Needs::ALLOCATIONS
    }

    fn rank(&self, rank: &RankTrace<'_>, at: &RankContext, options: &Options) -> SumsByName {
        let wanted = options.cut.interval(at.clock, &rank.steps());
        per_rank::of_rank(rank, wanted, at.clock)
    }

    fn join(&self, parts: Vec<(RankContext, SumsByName)>, _: &Options) -> Body {
        tables::body(parts)
    }
}
