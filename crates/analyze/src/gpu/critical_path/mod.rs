//! `critical-path`: the chain of work that decided how long it all took.

mod causes;
mod hta;
mod path;
mod tables;
#[cfg(test)]
mod tests;
mod timeline;
mod walk;

use tprof_trace::model::SpanKind;

use path::PathTimes;
use walk::critical_path;

use crate::base::intervals::Interval;
use crate::base::parallel;
use crate::document::{
    Analysis, Body, DocumentKind, OptionMatches, Options, RankContext, boxed, text_and_number,
};
use crate::rank::{HostSpan, Needs, PROFILER_STEP, RankTrace, WINDOW_NEEDS};

/// The report `critical-path`.
pub const KIND: DocumentKind = DocumentKind {
    name: "critical-path",
    about: "the chain of host and GPU work that decided the duration",
    analysis: || boxed(CriticalPath),
};

/// The critical path of each rank.
pub struct CriticalPath;

impl Analysis for CriticalPath {
    const KIND: &'static str = KIND.name;
    const TAKES: &'static [&'static str] = &["--within"];
    /// `None` if the range that was asked for, or anything at all, was not recorded.
    type Part = Option<PathTimes>;

    fn needs(&self, _: &Options) -> Needs {
        Needs::ALL_SPANS | WINDOW_NEEDS | Needs::SYNCHRONIZATIONS
    }

    fn named(&self, rank: &RankTrace<'_>, options: &Options) -> Vec<OptionMatches> {
        let Some(within) = options.within_text() else {
            return Vec::new();
        };
        let spans = ranges(options.hta).iter().flat_map(|kind| rank.spans(*kind));
        let name = |span: &HostSpan| rank.name(span.name).to_owned();
        let option = ("--within", "annotations and NVTX ranges");
        vec![OptionMatches::of(option, text_and_number(within), spans, name)]
    }

    fn rank(
        &self,
        rank: &RankTrace<'_>,
        _at: &RankContext,
        options: &Options,
    ) -> Option<PathTimes> {
        let window = window(rank, options)?;
        if options.hta {
            let outcome = hta::critical_path(rank, window)?;
            let counts = Some(outcome.counts);
            return Some(PathTimes { counts, ..PathTimes::of(rank, &outcome.path) });
        }
        // Steps may hold nothing that is on a path.
        let whole = || critical_path(rank, extent(rank).filter(|_| options.within.is_none())?);
        let path = critical_path(rank, window).or_else(whole)?;
        Some(PathTimes::of(rank, &path))
    }

    fn join(&self, parts: Vec<(RankContext, Option<PathTimes>)>, options: &Options) -> Body {
        tables::body(&parts, options)
    }
}

/// The window of the path: the range that was asked for. By default, it is from the beginning of
/// the first step on the host to the end of the last one on its device; without steps, from the
/// first to the last recorded event (HTA: the first step, if there is one).
fn window(rank: &RankTrace, options: &Options) -> Option<Interval> {
    let whole = Some(Interval::new(0, u64::MAX));
    match (&options.within, options.hta) {
        (Some(within), _) if within.is_empty() => whole,
        (Some(within), hta) => {
            let (text, number) = text_and_number(within);
            range(rank, ranges(hta), text, number.unwrap_or(0))
        }
        (None, true) => range(rank, ranges(true), PROFILER_STEP, 0).or(whole),
        (None, false) => steps(rank).or_else(|| extent(rank)),
    }
}

/// The time from the beginning of the first step to the end of the last.
fn steps(rank: &RankTrace) -> Option<Interval> {
    let devices = rank.device_steps().iter().flat_map(|of| &of.steps).map(|(_, time)| *time);
    let hosts = rank.steps().into_iter().map(|step| step.interval).collect::<Vec<_>>();
    Interval::hull(hosts.into_iter().chain(devices))
}

/// The kinds of spans that `--within` chooses among, or HTA's `annotation` and `instance_id`.
fn ranges(hta: bool) -> &'static [SpanKind] {
    match hta {
        true => &hta::RANGES,
        false => &[SpanKind::Annotation, SpanKind::Nvtx],
    }
}

/// The range of that number, from 0, among those with a name that contains a text: in order
/// of start, which is the order of the file.
fn range(rank: &RankTrace, kinds: &[SpanKind], text: &str, number: usize) -> Option<Interval> {
    let mut found: Vec<Interval> = kinds
        .iter()
        .flat_map(|kind| rank.spans(*kind))
        .filter(|span| rank.name(span.name).contains(text))
        .map(|span| span.interval())
        .collect();
    found.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    found.get(number).copied()
}

/// The time from the first to the last event on host threads and streams. A host span without a
/// duration is on no path: a window that ends with it would be longer than its path.
fn extent(rank: &RankTrace) -> Option<Interval> {
    let host = || {
        let spans = rank.spans(SpanKind::Operator).iter().chain(&rank.calls);
        Interval::hull(spans.map(|span| span.interval()).filter(|span| span.length() > 0))
    };
    let device = || Interval::hull(rank.work.iter().map(|work| work.interval()));
    let (host, device) = parallel::both(rank.cores, host, device);
    Interval::hull(host.into_iter().chain(device))
}
