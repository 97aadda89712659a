//! `annotations`: GPU time that the ranges that people named caused.

mod caused;
mod device;
mod host;
mod tables;
#[cfg(test)]
mod tests;

use caused::{CausedByName, ImagesByName};
pub(crate) use host::caused_by;

use tprof_trace::model::SpanKind;

use crate::document::{Analysis, Body, DocumentKind, Options, RankAt, boxed};
use crate::rank::{Needs, RankTrace};

/// The kind.
pub const KIND: DocumentKind = DocumentKind {
    name: "annotations",
    about: "GPU time of the work in each annotation and NVTX range",
    analysis: || boxed(Annotations),
};

/// Ranges that people named.
pub struct Annotations;

impl Analysis for Annotations {
    const KIND: &'static str = KIND.name;
    type Part = (CausedByName, ImagesByName);

    fn needs(&self, _: &Options) -> Needs {
        needs()
    }

    fn rank(
        &self,
        rank: &RankTrace<'_>,
        _at: &RankAt,
        _: &Options,
    ) -> (CausedByName, ImagesByName) {
        (host::caused(rank), device::images(rank))
    }

    fn join(&self, parts: Vec<(RankAt, (CausedByName, ImagesByName))>, _options: &Options) -> Body {
        tables::body(&parts)
    }
}

fn needs() -> Needs {
    Needs::WORK
        | Needs::CALLS
        | Needs::ANNOTATIONS
        | Needs::spans(SpanKind::Nvtx)
        | Needs::DEVICE_SPANS
}
