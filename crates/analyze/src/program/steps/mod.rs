//! `steps`: how long training steps take, how steady they are, and where
//! warm-up ends.

mod judge;
mod tables;

use tprof_facts::steps::Steps as StepsFound;
use tprof_trace::model::SpanKind;

pub use judge::{Judged, StepOrigin};

use crate::document::{Analysis, Body, DocumentKind, Options, RankAt, boxed};
use crate::rank::{Needs, RankTrace};

/// The kind.
pub const KIND: DocumentKind = DocumentKind {
    name: "steps",
    about: "step times, their spread, outliers, where warm-up ends",
    analysis: || boxed(Steps),
};

/// Times of training steps.
pub struct Steps;

impl Analysis for Steps {
    const KIND: &'static str = KIND.name;
    type Part = Judged;

    fn needs(&self, _: &Options) -> Needs {
        Needs::STEPS | Needs::spans(SpanKind::Nvtx)
    }

    fn rank(&self, rank: &RankTrace<'_>, _at: &RankAt, _: &Options) -> Judged {
        let StepsFound { source, others, batches, skipped, estimate, .. } =
            rank.steps_found().clone();
        let found = StepOrigin { source, others, batches, skipped, estimate };
        Judged { found, ..Judged::of(rank.steps()) }
    }

    fn join(&self, parts: Vec<(RankAt, Judged)>, _options: &Options) -> Body {
        tables::body(&parts)
    }
}
