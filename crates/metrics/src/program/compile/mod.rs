//! The report `compile`: what `torch.compile` did, read from PyTorch's own structured log.
//!
//! All figures come from PyTorch; none are sampled. Without such a log, the tables are empty and
//! the report says how to get a log.

mod breaks;
mod code_tables;
mod graphs;
mod per_rank;
mod summary;
mod tables;
#[cfg(test)]
mod tests;
mod words;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, View, boxed};
use tprof_rank::{Needs, RankTrace};
use tprof_trace::model::SpanKind;

pub use breaks::gaps;
use per_rank::RankCompiled;

/// The report `compile`.
pub const KIND: DocumentKind = DocumentKind {
    name: "compile",
    about: "torch.compile: time by phase, graph breaks, recompilations",
    analysis: || boxed(Compile),
};

/// Reports the logs of `torch.compile`.
struct Compile;

impl Analysis for Compile {
    const KIND: &'static str = KIND.name;
    const HTA: bool = false;
    type Part = RankCompiled;

    fn needs(&self, _: &Options) -> Needs {
        Needs::COMPILE
            | Needs::WORK
            | Needs::CALLS
            | Needs::OPERATORS
            | Needs::STEPS
            | Needs::spans(SpanKind::Nvtx)
    }

    fn rank(&self, rank: &RankTrace<'_>, at: &RankContext, _: &Options) -> RankCompiled {
        per_rank::read(rank, at)
    }

    fn join(&self, parts: Vec<(RankContext, RankCompiled)>, _: &Options) -> Body {
        let mut tables = vec![summary::table(&parts)];
        tables.extend(tables::all(&parts));
        tables.extend(code_tables::all(&parts));
        if parts.iter().all(|(_, part)| part.logs.is_empty()) {
            // If there is no log, all tables are empty. One of them is enough to say how to get a
            // log.
            tables.iter_mut().skip(1).for_each(|table| table.view = View::Data);
        }
        let notes = parts.iter().flat_map(|(_, part)| part.problems.clone()).collect();
        Body { tables, notes }
    }
}
