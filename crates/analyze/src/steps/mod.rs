//! `steps`: how long training steps take, how steady they are, and where
//! warm-up ends.

mod judge;
mod tables;

use tprof_trace::model::SpanKind;
use tprof_trace::{Problem, TraceFile};

pub use judge::Judged;

use crate::document::{Analysis, Body, DocumentKind, Options, RankAt};
use crate::rank::{Needs, RankTrace};

/// The kind.
pub const KIND: DocumentKind = DocumentKind {
    name: "steps",
    about: "step times, their spread, outliers, where warm-up ends",
    make: |path, options, symbols| crate::document::make(&Steps, path, options, symbols),
};

/// Times of training steps.
pub struct Steps;

impl Analysis for Steps {
    const KIND: &'static str = KIND.name;
    type Part = Judged;

    fn rank(
        &self,
        trace: &TraceFile,
        _at: &RankAt,
        options: &Options,
        problems: &mut Vec<Problem>,
    ) -> Judged {
        let mut rank = RankTrace::load_as(
            trace,
            Needs::ANNOTATIONS | Needs::spans(SpanKind::Nvtx),
            options.hta,
        );
        problems.append(&mut rank.problems);
        Judged::of(rank.steps())
    }

    fn join(&self, parts: Vec<(RankAt, Judged)>, _options: &Options) -> Body {
        tables::body(&parts)
    }
}
