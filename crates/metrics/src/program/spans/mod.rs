//! The report `spans`: time, allocations and floating-point operations of the spans that a program
//! names through tprof's API.
//!
//! The allocations of a span's thread during the span are exact. The records of the span's start
//! and end are either in that thread's ring, in order with its allocations, or they contain the
//! thread's allocation counts. What the thread did in that time is known from its context switches
//! and from samples. The work that it launched is found by correlations.

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

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::{Needs, RankTrace};

use sums::SumsByName;

/// The report `spans`.
pub const KIND: DocumentKind = DocumentKind {
    name: "spans",
    about: "spans of the program's own: time, allocations, FLOP/s",
    analysis: || boxed(Spans),
};

/// The spans of the program: `tprof report spans`.
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
