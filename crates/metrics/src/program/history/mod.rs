//! `history`: the figures of the steps over the whole job, and where they changed.
//!
//! The collector keeps a row a step or a second ([`tprof_facts::history`]), which stays when the rest
//! of what happened is deleted. `changes` finds where a series of values leaves its own past;
//! `figures` lists the series that are looked at; `summary` makes a rank's part of its rows; `cells`
//! adds rows up by time, `ranks` compares ranks, and `tables` has the tables.

mod cells;
mod changes;
mod figures;
mod ranks;
mod summary;
mod tables;
#[cfg(test)]
mod tests;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_facts::history::of_file;
use tprof_rank::{Needs, RankTrace};

use summary::RankHistory;

/// Registers the report, for the list of kinds.
pub const KIND: DocumentKind = DocumentKind {
    name: "history",
    about: "steps, devices, memory over the whole job, and what changed",
    analysis: || boxed(History),
};

/// Figures of steps for the whole job: `tprof report history`.
struct History;

impl Analysis for History {
    const KIND: &'static str = KIND.name;
    const HTA: bool = false;
    type Part = RankHistory;

    fn needs(&self, _: &Options) -> Needs {
        // The rows are in a table of their own.
        Needs::default()
    }

    fn rank(&self, rank: &RankTrace<'_>, at: &RankContext, options: &Options) -> RankHistory {
        let history = of_file(rank.file, options.steps_from);
        RankHistory::of(history, at, options.lists_single_rows())
    }

    fn join(&self, parts: Vec<(RankContext, RankHistory)>, _: &Options) -> Body {
        tables::body(&parts)
    }
}
