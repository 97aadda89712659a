//! The report `annotations`: the GPU time that the program's ranges caused.

mod device;
mod effects;
mod host;
mod modules;
mod tables;
#[cfg(test)]
mod tests;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::{Needs, RankTrace};
use tprof_trace::model::SpanKind;

use effects::{EffectsByName, ImagesByName};
pub(crate) use host::caused_by;
use modules::TimeByModule;

/// The report `annotations`.
pub const KIND: DocumentKind = DocumentKind {
    name: "annotations",
    about: "GPU time of annotations and NVTX ranges; time by PyTorch module",
    analysis: || boxed(Annotations),
};

/// Times and effects of a rank's ranges, by name.
pub struct NamedRanges {
    caused: EffectsByName,
    images: ImagesByName,
    modules: TimeByModule,
    /// Whether any device work was recorded.
    has_work: bool,
}

/// Reports the ranges that the program names.
pub struct Annotations;

impl Analysis for Annotations {
    const KIND: &'static str = KIND.name;
    type Part = NamedRanges;

    fn needs(&self, _: &Options) -> Needs {
        needs()
    }

    fn rank(&self, rank: &RankTrace<'_>, _at: &RankContext, _: &Options) -> NamedRanges {
        NamedRanges {
            caused: host::caused(rank),
            images: device::images(rank),
            modules: modules::times(rank),
            has_work: !rank.work.is_empty(),
        }
    }

    fn join(&self, parts: Vec<(RankContext, NamedRanges)>, _options: &Options) -> Body {
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
