//! What every rule looks at: a rank's time, judged over its steps.
//!
//! A rule's bound follows from what a fix leaves as it was: the device has still
//! to do its other work, and a host thread its own, so that a step gets no
//! shorter than either. `docs/metrics.md` has the reasoning for each.

mod beginning;
pub(super) mod calls;
pub(super) mod copies;
pub(super) mod gaps;
mod main_threads;
mod sampled_loading;

use std::borrow::Cow;
use std::sync::OnceLock;

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_facts::Clock;
use tprof_trace::model::{NameId, SpanKind, ThreadIndex};

use super::rule::{Evidence, Finding, Place};
use crate::base::intervals::{Cover, Interval};
use crate::base::parallel;
use crate::rank::{
    Busy, HostSpan, Moment, OnThread, RankTrace, Step, Work, enclosing, nesting_order,
};
use copies::Copy;
use gaps::Gap;
use main_threads::MainThreads;
use sampled_loading::SampledLoading;

/// Shortest gap that is called one, of a short step.
const LEAST_GAP_NS: u64 = 1_000_000;
/// Gaps from this length on are always called gaps: the default of the rule "GPU
/// gaps" of Nsight Systems.
const MOST_GAP_NS: u64 = 500_000_000;

/// One rank, ready to be judged.
pub(super) struct Scene<'a> {
    /// Its rows.
    pub rank: &'a RankTrace<'a>,
    /// Its times as times since the run began.
    pub clock: Clock,
    /// How many steps the window holds; 0 if none were seen.
    pub steps: usize,
    /// The steps after the first one.
    pub later_steps: Vec<Interval>,
    /// The time that is judged: the steps, each until the work that it launched is
    /// done. Without steps, from the first to the last work; without a device, the
    /// life of the job.
    pub window: Cover,
    /// Time in the window that is neither busy nor idle: devices may have had work in it
    /// from before the recording.
    pub untold_ns: u64,
    /// Kernels that compute, in the window.
    pub compute: Cover,
    /// Kernels that communicate, in the window.
    pub communication: Cover,
    /// No device of the rank does anything; all of the window if there is none.
    pub idle: Cover,
    /// The part of it in which the device waits for the host to launch something; all
    /// of it if there is no device.
    pub late: Cover,
    /// The same, gap by gap, with what ended each.
    pub gaps: Vec<Gap>,
    /// The threads that drive the job.
    pub main_threads: MainThreads,
    /// Copies and memsets with their calls, in order of start: all that were recorded.
    copy_rows: Vec<Copy>,
    /// Of each piece of work, how much is in the window.
    pub work_in_window_ns: Vec<u64>,
    /// Nobody reads the words that tell what was seen, and where: leave out of them what
    /// takes long to find out.
    pub is_brief: bool,
    /// Ranges that somebody named and operators, but no steps, in nesting order; once
    /// a rule asked.
    ranges: OnceLock<Vec<Range>>,
    /// PyTorch's DataLoader in CPU samples; once a rule asked.
    sampled_loading: OnceLock<SampledLoading>,
}

/// A range that somebody named, or an operator.
struct Range {
    start_ns: u64,
    end_ns: u64,
    thread: ThreadIndex,
    name: NameId,
}

impl OnThread for Range {
    fn thread(&self) -> u32 {
        self.thread
    }

    fn start_ns(&self) -> u64 {
        self.start_ns
    }

    fn end_ns(&self) -> u64 {
        self.end_ns
    }
}

/// When a call was made, and what that counts for.
pub(super) fn moment_of_call(call: &HostSpan, weight_ns: u64) -> Moment<u64> {
    Moment { thread: call.thread, time_ns: call.start_ns, of: weight_ns }
}

impl<'a> Scene<'a> {
    /// Looks at a rank.
    pub fn of(rank: &'a RankTrace<'a>, clock: Clock) -> Scene<'a> {
        let steps = steps_of_one_process(rank);
        let window = window(rank, &steps);
        let of_time = || {
            let idle = window.without(&of_devices(rank, |busy| &busy.any));
            let gaps = Gap::all(rank, &idle);
            let untold = beginning::untold(rank, &gaps);
            let (idle, gaps) = match untold.is_empty() {
                true => (idle, gaps),
                false => {
                    let idle = idle.without(&untold);
                    let gaps = Gap::all(rank, &idle);
                    (idle, gaps)
                }
            };
            let late = Cover::of(gaps.iter().map(Gap::late));
            (untold.length(), idle, gaps, late)
        };
        let of_work = || {
            let measure = window.measure();
            let mut walk = measure.walk();
            let within = rank.work.iter().map(|work| walk.within(work.interval()));
            let work_in_window_ns: Vec<u64> = within.collect();
            let compute = of_devices(rank, |busy| &busy.compute).intersection(&window);
            let communication = of_devices(rank, |busy| &busy.communication).intersection(&window);
            let main_threads = MainThreads::of(rank, &steps);
            (work_in_window_ns, compute, communication, main_threads, copies::all(rank))
        };
        let ((untold_ns, idle, gaps, late), of_work) = parallel::both(rank.cores, of_time, of_work);
        let (work_in_window_ns, compute, communication, main_threads, copy_rows) = of_work;
        Scene {
            clock,
            steps: steps.len(),
            later_steps: steps.iter().skip(1).map(|step| step.interval).collect(),
            window,
            untold_ns,
            compute,
            communication,
            idle,
            late,
            gaps,
            main_threads,
            copy_rows,
            work_in_window_ns,
            is_brief: false,
            ranges: OnceLock::new(),
            sampled_loading: OnceLock::new(),
            rank,
        }
    }

    /// A finding of which this is wrong.
    pub fn finding(&self, what: &str) -> Finding {
        Finding { is_brief: self.is_brief, ..Finding::new(what) }
    }

    /// Whether anything ran on a device.
    pub fn has_device(&self) -> bool {
        !self.rank.work.is_empty()
    }

    /// Length of the window.
    pub fn window_ns(&self) -> u64 {
        self.window.length()
    }

    /// Time in which a device worked outside of the window.
    pub fn outside_ns(&self) -> u64 {
        of_devices(self.rank, |busy| &busy.any).without(&self.window).length()
    }

    /// Length of a mean step; of the window where no steps were seen.
    pub fn step_ns(&self) -> u64 {
        self.window_ns() / self.steps.max(1) as u64
    }

    /// A time in the window as a part of it.
    pub fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.window_ns().max(1) as f64
    }

    /// A time in the window, for each step.
    pub fn per_step(&self, ns: u64) -> u64 {
        ns / self.steps.max(1) as u64
    }

    /// `a step`, or what stands for it.
    pub fn a_step(&self) -> &'static str {
        if self.steps > 0 { "a step" } else { "in all" }
    }

    /// Gaps from this length on are looked at one by one, shorter ones together:
    /// 1 % of a step, but between 1 ms and 500 ms.
    pub fn long_gap_ns(&self) -> u64 {
        (self.step_ns() / 100).clamp(LEAST_GAP_NS, MOST_GAP_NS)
    }

    /// Calls of the main threads whose name passes and that lie in the window.
    pub fn calls_named(&self, passes: impl Fn(&str) -> bool) -> Vec<usize> {
        let mut names: FxHashMap<NameId, bool> = FxHashMap::default();
        let mut named = |id| *names.entry(id).or_insert_with(|| passes(self.rank.name(id)));
        let Some(span) = self.window.span() else { return Vec::new() };
        let calls = self.rank.calls.iter().enumerate();
        calls
            .filter(|(_, call)| self.main_threads.contains(call.thread))
            .filter(|(_, call)| call.interval().overlap(span).length() > 0)
            .filter(|(_, call)| named(call.name))
            .map(|(at, _)| at)
            .collect()
    }

    /// Whether a moment or a part of an interval is in the window.
    pub fn holds(&self, interval: Interval) -> bool {
        let parts = self.window.parts();
        let first = parts.partition_point(|part| part.end <= interval.start);
        parts.get(first).is_some_and(|part| part.start < interval.end.max(interval.start + 1))
    }

    /// Copies and memsets in the window that pass.
    pub fn copies(&self, passes: impl Fn(&Copy) -> bool) -> Vec<Copy> {
        let rows = self.copy_rows.iter().filter(|copy| self.holds(copy.interval()));
        rows.filter(|copy| passes(copy)).copied().collect()
    }

    /// Whether a copy or a memset that passes was recorded at all.
    pub fn has_copies(&self, passes: impl Fn(&Copy) -> bool) -> bool {
        self.copy_rows.iter().any(passes)
    }

    /// Work in the window.
    pub fn work(&self) -> impl Iterator<Item = &Work> {
        let rows = self.rank.work.iter().zip(&self.work_in_window_ns);
        rows.filter(|(_, ns)| **ns > 0).map(|(work, _)| work)
    }

    /// Time in the window in which one of these calls lasted.
    pub fn cover_of_calls(&self, calls: &[usize]) -> Cover {
        let intervals = calls.iter().map(|&at| self.rank.calls[at].interval());
        Cover::of(intervals).intersection(&self.window)
    }

    /// Whether a call whose name passes was recorded at all.
    pub fn has_calls(&self, passes: impl Fn(&str) -> bool) -> bool {
        self.has_named(self.rank.calls.iter(), passes)
    }

    /// Whether a host span of these kinds whose name passes was recorded at all.
    pub fn has_spans(&self, kinds: &[SpanKind], passes: impl Fn(&str) -> bool) -> bool {
        self.has_named(kinds.iter().flat_map(|kind| self.rank.spans(*kind)), passes)
    }

    fn has_named<'s>(
        &self,
        mut spans: impl Iterator<Item = &'s HostSpan>,
        passes: impl Fn(&str) -> bool,
    ) -> bool {
        let mut failed: FxHashSet<NameId> = FxHashSet::default();
        spans.any(|span| {
            !failed.contains(&span.name) && {
                let passed = passes(self.rank.name(span.name));
                failed.insert(span.name);
                passed
            }
        })
    }

    /// Host spans of the main threads of these kinds whose name passes.
    pub fn spans_named(&self, kinds: &[SpanKind], passes: impl Fn(&str) -> bool) -> Vec<&HostSpan> {
        let mut names: FxHashMap<NameId, bool> = FxHashMap::default();
        let mut named = |id| *names.entry(id).or_insert_with(|| passes(self.rank.name(id)));
        let spans = kinds.iter().flat_map(|kind| self.rank.spans(*kind));
        spans.filter(|span| self.main_threads.contains(span.thread) && named(span.name)).collect()
    }

    /// Calls as places.
    pub fn call_places(&self, calls: &[usize]) -> impl Iterator<Item = Evidence<'a>> {
        calls.iter().map(|&at| self.span_place(&self.rank.calls[at]))
    }

    /// A host span as a place.
    pub fn span_place(&self, span: &HostSpan) -> Evidence<'a> {
        Evidence {
            interval: span.interval(),
            place: Place::Thread(span.thread),
            name: self.rank.name(span.name).into(),
        }
    }

    /// Work as a place.
    pub fn work_place(&self, work: &Work) -> Evidence<'a> {
        Evidence {
            interval: work.interval(),
            place: Place::Stream(self.rank.stream(work)),
            name: self.rank.work_name(work),
        }
    }

    /// What CPU samples tell of PyTorch's DataLoader.
    pub fn sampled_loading(&self) -> &SampledLoading {
        self.sampled_loading.get_or_init(|| SampledLoading::of(self))
    }

    /// Names of the innermost ranges around moments of threads, each with the sum
    /// of the weights given, most first. None where nobody reads them.
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
        sums.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        sums
    }
}

/// When any of a rank's devices was busy so.
fn of_devices<'r>(rank: &'r RankTrace<'_>, of: fn(&Busy) -> &Cover) -> Cow<'r, Cover> {
    match rank.devices() {
        [one] => Cow::Borrowed(of(one)),
        many => Cow::Owned(many.iter().fold(Cover::default(), |all, one| all.union(of(one)))),
    }
}

/// Steps of the process that has most of them.
fn steps_of_one_process(rank: &RankTrace<'_>) -> Vec<Step> {
    let mut steps = rank.steps();
    let mut counts: FxHashMap<u32, usize> = FxHashMap::default();
    for step in &steps {
        *counts.entry(step.process).or_default() += 1;
    }
    let most = counts.iter().max_by_key(|(process, count)| (**count, std::cmp::Reverse(**process)));
    if let Some((&process, _)) = most {
        steps.retain(|step| step.process == process);
    }
    steps
}

fn window(rank: &RankTrace<'_>, steps: &[Step]) -> Cover {
    if steps.is_empty() {
        let end = rank.work.iter().map(Work::end_ns).max();
        let work = rank.work.first().zip(end);
        let first = rank.file.processes().iter().map(|process| process.start_ns).min();
        let life = first.map(|first| Interval::new(first, rank.file.last_ns()));
        return Cover::of(work.map(|(first, end)| Interval::new(first.start_ns, end)).or(life));
    }
    let mut parts: Vec<Interval> = steps.iter().map(|step| step.interval).collect();
    for (work, step) in rank.work.iter().zip(rank.steps_of_work(steps)) {
        if let Some(step) = step {
            let part = &mut parts[step as usize];
            part.end = part.end.max(work.end_ns());
        }
    }
    Cover::of(parts)
}

fn ranges(rank: &RankTrace<'_>) -> Vec<Range> {
    let spans = [SpanKind::Annotation, SpanKind::Nvtx, SpanKind::Operator]
        .map(|kind| rank.spans(kind).iter());
    let mut ranges = Vec::with_capacity(spans.iter().map(ExactSizeIterator::len).sum());
    for span in spans.into_iter().flatten() {
        let HostSpan { start_ns, thread, name, .. } = *span;
        if !rank.name(name).starts_with(crate::rank::PROFILER_STEP) {
            ranges.push(Range { start_ns, end_ns: span.end_ns(), thread, name });
        }
    }
    ranges.sort_by_key(nesting_order);
    ranges
}
