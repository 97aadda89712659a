//! `counters`: quantities over time, and hardware counters by operator.

mod gauges;
mod ranges;
mod tables;

use std::collections::BTreeMap;

pub use gauges::{Gauge, GaugeKey};
pub use ranges::Range;

use crate::document::{Analysis, Body, DocumentKind, Options, RankAt, boxed};
use crate::rank::{Needs, RankTrace};

/// The kind.
pub const KIND: DocumentKind = DocumentKind {
    name: "counters",
    about: "quantities over time, hardware counters by operator",
    analysis: || boxed(Counters),
};

/// Counters.
pub struct Counters;

/// A rank's counters.
#[derive(Clone, Debug, Default)]
pub struct RankCounters {
    /// Quantities over time.
    pub gauges: BTreeMap<GaugeKey, Gauge>,
    /// Ranges with hardware counters, in order of time.
    pub ranges: Vec<Range>,
    /// Why the ranges' operators are not known, if they are not.
    pub unmatched: Option<String>,
}

impl Analysis for Counters {
    const KIND: &'static str = KIND.name;
    type Part = RankCounters;

    fn needs(&self, _: &Options) -> Needs {
        Needs::CALLS | Needs::OPERATORS | Needs::DEVICE_SPANS
    }

    fn rank(&self, rank: &RankTrace<'_>, _at: &RankAt, _: &Options) -> RankCounters {
        let (ranges, unmatched) = ranges::ranges(rank, rank.operator_tree());
        RankCounters { gauges: gauges::gauges(rank.file), ranges, unmatched }
    }

    fn join(&self, parts: Vec<(RankAt, RankCounters)>, _options: &Options) -> Body {
        tables::body(&parts)
    }
}
