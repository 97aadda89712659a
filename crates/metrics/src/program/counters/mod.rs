//! The report `counters`: quantities over time, and hardware counters by operator.

mod gauges;
mod ranges;
mod tables;

use std::collections::BTreeMap;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::{Needs, RankTrace};

use gauges::CounterValues;
pub use gauges::{Gauge, GaugeKey};
pub use ranges::Range;

/// The report `counters`.
pub const KIND: DocumentKind = DocumentKind {
    name: "counters",
    about: "quantities over time, hardware counters by operator",
    analysis: || boxed(Counters),
};

/// Counters over time and by range.
pub struct Counters;

/// The counters of a rank.
#[derive(Clone, Debug, Default)]
pub struct RankCounters {
    /// Counters over the whole time.
    pub gauges: BTreeMap<GaugeKey, Gauge>,
    /// Counters in each step in which they were read, by the step's number.
    pub by_step: BTreeMap<(GaugeKey, u64), Gauge>,
    /// For each counter, the number of readings that are infinite or not a number. The other fields
    /// leave these out.
    pub not_finite: BTreeMap<GaugeKey, u64>,
    /// Ranges with hardware counters, in order of time.
    pub ranges: Vec<Range>,
    /// The reason why the ranges' operators aren't known; `None` if they are.
    pub unmatched: Option<String>,
}

impl Analysis for Counters {
    const KIND: &'static str = KIND.name;
    type Part = RankCounters;

    fn needs(&self, _: &Options) -> Needs {
        Needs::CALLS | Needs::OPERATORS | Needs::DEVICE_SPANS | Needs::STEPS
    }

    fn rank(&self, rank: &RankTrace<'_>, _at: &RankContext, _: &Options) -> RankCounters {
        let (ranges, unmatched) = ranges::ranges(rank, rank.operator_tree());
        let readings = CounterValues::of(rank.file);
        let (gauges, by_step) = (readings.gauges(), readings.by_step(&rank.steps()));
        let not_finite = readings.not_finite().clone();
        RankCounters { gauges, by_step, not_finite, ranges, unmatched }
    }

    fn join(&self, parts: Vec<(RankContext, RankCounters)>, _options: &Options) -> Body {
        tables::body(&parts)
    }
}
