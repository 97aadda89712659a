//! `critical-path`: the chain of host and device work that determined the total time.

mod causes;
mod hta;
mod path;
mod tables;
#[cfg(test)]
mod tests;
mod timeline;
mod walk;

use tprof_document::{
    Analysis, Body, DocumentKind, OptionMatches, Options, RankContext, boxed, text_and_number,
};
use tprof_rank::base::intervals::Interval;
use tprof_rank::base::parallel;
use tprof_rank::{HostSpan, Needs, PROFILER_STEP, RankTrace, WINDOW_NEEDS};
use tprof_trace::model::SpanKind;

use path::PathTimes;
use walk::critical_path;

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
    /// `None` if the range in `--within` wasn't recorded, or if the rank has no events at all.
    type Part = Option<PathTimes>;

    fn needs(&self, _: &Options) -> Needs {
        Needs::ALL_SPANS | WINDOW_NEEDS | Needs::SYNCHRONIZATIONS
    }

    fn option_matches(&self, rank: &RankTrace<'_>, options: &Options) -> Vec<OptionMatches> {
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
        // If no event lies in the steps, use the time of all events instead.
        let whole = || critical_path(rank, extent(rank).filter(|_| options.within.is_none())?);
        let path = critical_path(rank, window).or_else(whole)?;
        Some(PathTimes::of(rank, &path))
    }

    fn join(&self, parts: Vec<(RankContext, Option<PathTimes>)>, options: &Options) -> Body {
        tables::body(&parts, options)
    }
}

/// Returns the window of the path: the range that `--within` names. By default, the window goes
/// from the beginning of the first step on the host to the end of the last step on its device.
/// Without steps, it goes from the first to the last recorded event. With HTA's reading, the
/// default is the first step, if the rank has one.
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

/// Returns the time from the beginning of the first step to the end of the last one.
fn steps(rank: &RankTrace) -> Option<Interval> {
    let devices = rank.device_steps().iter().flat_map(|of| &of.steps).map(|(_, time)| *time);
    let hosts = rank.steps().into_iter().map(|step| step.interval).collect::<Vec<_>>();
    Interval::hull(hosts.into_iter().chain(devices))
}

/// Returns the kinds of spans that `--within` chooses among. With HTA's reading, these are the
/// kinds that HTA's parameters `annotation` and `instance_id` choose among.
fn ranges(hta: bool) -> &'static [SpanKind] {
    match hta {
        true => &hta::RANGES,
        false => &[SpanKind::Annotation, SpanKind::Nvtx],
    }
}

/// Returns the range with this number among those whose name contains `text`. Numbers start at 0
/// and follow the order of start, which is the order in the file.
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

/// Returns the time from the first to the last event on host threads and streams. Host spans
/// without a duration are ignored. The path never contains them, so a window that ended with one
/// would be longer than its path.
fn extent(rank: &RankTrace) -> Option<Interval> {
    let host = || {
        let spans = rank.spans(SpanKind::Operator).iter().chain(&rank.calls);
        Interval::hull(spans.map(|span| span.interval()).filter(|span| span.length() > 0))
    };
    let device = || Interval::hull(rank.work.iter().map(|work| work.interval()));
    let (host, device) = parallel::both(rank.cores, host, device);
    Interval::hull(host.into_iter().chain(device))
}
