//! `counters`: quantities over time, and hardware counters by operator.

mod gauges;
mod ranges;
mod tables;

use std::collections::BTreeMap;

use tprof_trace::{Problem, TraceFile};

pub use gauges::{Gauge, GaugeKey};
pub use ranges::Range;

use crate::call_tree::CallTree;
use crate::document::{Analysis, Body, DocumentKind, Options, RankAt};
use crate::rank::{Needs, RankTrace};

/// The kind.
pub const KIND: DocumentKind = DocumentKind {
    name: "counters",
    about: "quantities over time, hardware counters by operator",
    make: |path, options, symbols| crate::document::make(&Counters, path, options, symbols),
};

/// Counters.
pub struct Counters;

/// A rank's counters.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Quantities over time.
    pub gauges: BTreeMap<GaugeKey, Gauge>,
    /// Ranges with hardware counters, in order of time.
    pub ranges: Vec<Range>,
    /// Why the ranges' operators are not known, if they are not.
    pub unmatched: Option<String>,
}

impl Analysis for Counters {
    const KIND: &'static str = KIND.name;
    type Part = Part;

    fn rank(
        &self,
        trace: &TraceFile,
        _at: &RankAt,
        options: &Options,
        problems: &mut Vec<Problem>,
    ) -> Part {
        let needs = Needs::CALLS | Needs::OPERATORS | Needs::DEVICE_SPANS;
        let mut rank = RankTrace::load_as(trace, needs, options.hta);
        problems.append(&mut rank.problems);
        let (ranges, unmatched) = ranges::ranges(&rank, &CallTree::of(&rank));
        Part { gauges: gauges::gauges(trace), ranges, unmatched }
    }

    fn join(&self, parts: Vec<(RankAt, Part)>, _options: &Options) -> Body {
        tables::body(&parts)
    }
}
