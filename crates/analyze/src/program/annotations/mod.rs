//! `annotations`: GPU time that the ranges that people named caused.

mod device;
mod host;
mod tables;
#[cfg(test)]
mod tests;

pub(crate) use host::caused_by;

use std::collections::BTreeMap;

use tprof_trace::model::SpanKind;

use crate::document::{Analysis, Body, DocumentKind, Options, RankAt, boxed};
use crate::rank::{Needs, RankTrace};

/// The kind.
pub const KIND: DocumentKind = DocumentKind {
    name: "annotations",
    about: "GPU time that each annotation and NVTX range caused",
    analysis: || boxed(Annotations),
};

/// Ranges that people named.
pub struct Annotations;

/// What the ranges of one name caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caused {
    /// How many ranges.
    pub runs: u64,
    /// Time in which at least one was open on a host thread.
    pub host_ns: u64,
    /// Kernels, copies and memsets launched within.
    pub kernels: u64,
    /// Those that another thread launched.
    pub kernels_of_other_threads: u64,
    /// Time in which at least one of them ran.
    pub busy_ns: u64,
    /// Sum of their durations.
    pub sum_ns: u64,
}

/// Images on devices of the ranges of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// How long each lasted.
    pub times_ns: Vec<u64>,
    /// Work to which one of them is the shortest that overlaps it on its stream.
    pub kernels: u64,
    /// Sum of its durations.
    pub kernel_ns: u64,
}

impl Image {
    fn add(&mut self, mut other: Image) {
        self.times_ns.append(&mut other.times_ns);
        self.kernels += other.kernels;
        self.kernel_ns += other.kernel_ns;
    }
}

/// By name of the range.
pub type Ranges = BTreeMap<String, Caused>;
/// By name of the range.
pub type Images = BTreeMap<String, Image>;

impl Analysis for Annotations {
    const KIND: &'static str = KIND.name;
    type Part = (Ranges, Images);

    fn needs(&self, _: &Options) -> Needs {
        needs()
    }

    fn rank(&self, rank: &RankTrace<'_>, _at: &RankAt, _: &Options) -> (Ranges, Images) {
        (host::caused(rank), device::images(rank))
    }

    fn join(&self, parts: Vec<(RankAt, (Ranges, Images))>, _options: &Options) -> Body {
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
