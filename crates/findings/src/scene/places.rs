//! Turns a scene's events into places for findings, and finds the ranges around them.

use rustc_hash::FxHashMap;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{HostSpan, Moment, Work, enclosing, nesting_order};
use tprof_trace::model::NameId;

use super::Scene;
use super::ranges::ranges;
use crate::finding::{Evidence, Finding, Track};

/// Returns the start of a call as a moment with this weight, ns.
pub(crate) fn moment_of_call(call: &HostSpan, weight_ns: u64) -> Moment<u64> {
    Moment { thread: call.thread, time_ns: call.start_ns, of: weight_ns }
}

impl<'a> Scene<'a> {
    /// Creates a finding with this problem.
    pub fn finding(&self, what: &str) -> Finding {
        Finding {
            is_brief: self.is_brief,
            may_be_pytorch: self.may_be_pytorch(),
            ..Finding::new(what)
        }
    }

    /// Returns these calls as places.
    pub fn call_places(&self, calls: &[usize]) -> impl Iterator<Item = Evidence<'a>> {
        calls.iter().map(|&at| self.span_place(&self.rank.calls[at]))
    }

    /// Returns a host span as a place.
    pub fn span_place(&self, span: &HostSpan) -> Evidence<'a> {
        Evidence {
            interval: span.interval(),
            place: Track::Thread(span.thread),
            name: self.rank.name(span.name).into(),
        }
    }

    /// Returns a piece of work as a place.
    pub fn work_place(&self, work: &Work) -> Evidence<'a> {
        Evidence {
            interval: work.interval(),
            place: Track::Stream(self.rank.stream(work)),
            name: self.rank.work_name(work),
        }
    }

    /// Returns the names of the innermost ranges around some moments. Each name comes with the sum
    /// of its moments' weights, most first. Returns nothing if the scene is brief, because no text
    /// is needed then.
    pub fn around(&self, moments: impl Iterator<Item = Moment<u64>>) -> Vec<(String, u64)> {
        if self.is_brief {
            return Vec::new();
        }
        let ranges = self.ranges.get_or_init(|| ranges(self.rank));
        let mut moments: Vec<Moment<u64>> = moments.collect();
        moments.sort_by_key(nesting_order);
        let mut sums: FxHashMap<NameId, u64> = FxHashMap::default();
        for (range, moment) in enclosing(ranges, &moments).zip(&moments) {
            let name = range.map_or(NameId(0), |at| ranges[at as usize].name);
            *sums.entry(name).or_default() += moment.of;
        }
        let mut sums: Vec<(String, u64)> =
            sums.into_iter().map(|(id, sum)| (self.rank.name(id).to_owned(), sum)).collect();
        sums.sort_rows_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        sums
    }
}
