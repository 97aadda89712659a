//! Time on a core by training step and by range.
//!
//! Each sample belongs to one step and one innermost range, or says that it lies
//! outside of all; so the parts add up to the whole. Waits are not split: short
//! ones were added up over many steps before they were written.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_trace::model::{
    MarkKind, NameId, ProcessIndex, Sample, SpanKind, StackId, ThreadIndex, ThreadState,
};

use super::ranges::{ChainId, ThreadRanges};
use crate::base::intervals::{Cover, Interval};
use crate::document::text_and_number;
use crate::rank::samples::CpuTrace;
use crate::rank::samples::{Func, Layer, Stack};
use crate::rank::{HostSpan, PROFILER_STEP, RankTrace, Step, step_at};

/// What a step or range is known by: its place among steps (of ranges 0), its name.
pub type Label = (u64, String);

/// Time of a function within a step or range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Within {
    /// Innermost.
    pub self_ns: u64,
    /// Anywhere on the stack.
    pub total_ns: u64,
}

/// Time of a step or range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// With it innermost.
    pub self_ns: u64,
    /// Samples behind that.
    pub self_samples: u64,
    /// With it around, however deep.
    pub total_ns: u64,
    /// Samples behind that.
    pub total_samples: u64,
    /// Of `self_ns`, by the innermost function that a person would know.
    pub mostly: FxHashMap<Func, u64>,
    /// Of `total_ns`, by function, where that was asked for.
    pub functions: FxHashMap<Func, Within>,
}

/// Time by step, or by range; `None` is outside of all.
pub type Groups = BTreeMap<Option<Label>, Group>;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// By step; empty if there are none.
    pub steps: Groups,
    /// By range; empty if there are none.
    pub ranges: Groups,
    /// On a core without a sample that would tell where.
    pub unsampled_ns: u64,
}

/// Which step a moment belongs to.
pub(super) struct StepLookup {
    steps: Vec<Step>,
    labels: Vec<Label>,
    /// Processes that have steps.
    owners: FxHashSet<ProcessIndex>,
}

impl StepLookup {
    /// The rank's steps; ranges that are named like them; what lies between marks.
    pub(super) fn of(rank: &RankTrace<'_>) -> StepLookup {
        let mut steps = rank.steps();
        if steps.is_empty() {
            let numbered = |span: &HostSpan| {
                let number = rank.name(span.name).strip_prefix(PROFILER_STEP)?.parse().ok()?;
                Some(Step { number, process: span.process, interval: span.interval() })
            };
            steps = rank.spans(SpanKind::Nvtx).iter().filter_map(numbered).collect();
            steps.sort_by_key(|step| (step.interval, step.process, step.number));
        }
        let label = |step: &Step| (step.number, format!("step {}", step.number));
        let mut labels: Vec<Label> = steps.iter().map(label).collect();
        if steps.is_empty() {
            (steps, labels) = marks(rank);
        }
        let owners = steps.iter().map(|step| step.process).collect();
        StepLookup { steps, labels, owners }
    }

    /// There are none.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// What the step of a moment is known by.
    pub(super) fn label_at(&self, process: ProcessIndex, time_ns: u64) -> Option<Label> {
        self.at(process, time_ns).map(|step| self.labels[step as usize].clone())
    }

    /// Workers of a process with steps belong to its steps.
    fn at(&self, process: ProcessIndex, time_ns: u64) -> Option<u32> {
        let owner = match self.owners.contains(&process) {
            true => process,
            false if self.owners.len() == 1 => *self.owners.iter().next()?,
            false => return None,
        };
        step_at(&self.steps, owner, time_ns)
    }
}

/// From each mark to the next one, the last one without an end.
fn marks(rank: &RankTrace<'_>) -> (Vec<Step>, Vec<Label>) {
    let marks = rank.file.marks().iter().filter(|mark| mark.kind == MarkKind::Mark);
    let mut marks: Vec<(u64, NameId)> = marks.map(|mark| (mark.time_ns, mark.name)).collect();
    marks.sort_unstable();
    let mut steps = Vec::new();
    let mut labels = Vec::new();
    for (at, (start_ns, name)) in marks.iter().enumerate() {
        let end_ns = marks.get(at + 1).map_or(u64::MAX, |next| next.0);
        let interval = Interval::new(*start_ns, end_ns);
        steps.push(Step { number: at as u64, process: 0, interval });
        labels.push((at as u64, format!("from mark {}", rank.name(*name))));
    }
    (steps, labels)
}

/// The function that tells a person most: Python's innermost, else the code's own.
fn telling(trace: &CpuTrace, stack: &[u32]) -> Option<Func> {
    let of = |layer| stack.iter().map(|id| trace.names.get(*id)).find(move |f| f.layer == layer);
    of(Layer::Python).or_else(|| of(Layer::Native)).or_else(|| of(Layer::Kernel)).cloned()
}

/// Where samples lie: step, ranges, stack.
type SampleGroup = (Option<u32>, ChainId, ProcessIndex, StackId);

impl Split {
    /// Splits a rank's samples, or those of them that `keep` keeps and that `trace`
    /// was made of. Steps, NVTX ranges and samples must have been read. `data`: by
    /// function too.
    pub fn of(
        rank: &RankTrace<'_>,
        trace: &CpuTrace,
        keep: impl Fn(&Sample) -> bool,
        data: bool,
    ) -> Split {
        let (steps, ranges) = (StepLookup::of(rank), ThreadRanges::of(rank));
        let mut split = Split::default();
        if steps.is_empty() && ranges.is_empty() {
            return split;
        }
        let mut places: FxHashMap<SampleGroup, (u64, u64)> = FxHashMap::default();
        // What cannot be read was told when the samples were read first.
        for row in rank.file.blocks::<Sample>().flatten().filter(&keep) {
            match is_sample(&row) {
                Some(true) => {
                    let step = steps.at(row.process, row.time_ns);
                    let chain = ranges.at(row.thread, row.time_ns);
                    let sum = places.entry((step, chain, row.process, row.stack)).or_default();
                    sum.0 += row.weight_ns;
                    sum.1 += 1;
                }
                Some(false) => split.unsampled_ns += row.weight_ns,
                None => {}
            }
        }
        for ((step, chain, process, stack), sum) in places {
            let stack = trace.stack(process, stack);
            if !steps.is_empty() {
                let label = step.map(|step| steps.labels[step as usize].clone());
                let group = split.steps.entry(label).or_default();
                group.add_self(trace, stack, sum);
                group.add_total(sum);
                if data {
                    group.add_functions(trace, stack, sum.0);
                }
            }
            if !ranges.is_empty() {
                let mut labels: Vec<Option<Label>> = ranges
                    .keys(chain)
                    .map(|(domain, text)| Some((0, range_name(rank, domain, text))))
                    .collect();
                if labels.is_empty() {
                    labels.push(None);
                }
                let innermost = labels[0].clone();
                split.ranges.entry(innermost).or_default().add_self(trace, stack, sum);
                // Once, however often it is within itself.
                labels.sort();
                labels.dedup();
                for label in labels {
                    let group = split.ranges.entry(label).or_default();
                    group.add_total(sum);
                    if data {
                        group.add_functions(trace, stack, sum.0);
                    }
                }
            }
        }
        split
    }

    /// Adds another rank's.
    pub fn add(&mut self, other: Split) {
        for (into, from) in [(&mut self.steps, other.steps), (&mut self.ranges, other.ranges)] {
            for (label, group) in from {
                into.entry(label).or_default().add(group);
            }
        }
        self.unsampled_ns += other.unsampled_ns;
    }
}

/// Whether a row is a sample of a running thread, or time that no sample stands for.
pub(super) fn is_sample(row: &Sample) -> Option<bool> {
    (row.state == ThreadState::Running).then_some(row.cpu.is_some())
}

pub(super) fn range_name(rank: &RankTrace<'_>, domain: NameId, text: NameId) -> String {
    match rank.name(domain) {
        "" => rank.name(text).to_owned(),
        domain => format!("{domain}:{}", rank.name(text)),
    }
}

impl Group {
    fn add_self(&mut self, trace: &CpuTrace, stack: &Stack, sum: (u64, u64)) {
        self.self_ns += sum.0;
        self.self_samples += sum.1;
        if let Some(func) = telling(trace, &stack.functions) {
            *self.mostly.entry(func).or_default() += sum.0;
        }
    }

    fn add_functions(&mut self, trace: &CpuTrace, stack: &Stack, ns: u64) {
        let mut seen = FxHashSet::default();
        for (at, id) in stack.functions.iter().enumerate() {
            let innermost = at == stack.inlined;
            let first = seen.insert(*id);
            if first || innermost {
                let within = self.functions.entry(trace.names.get(*id).clone()).or_default();
                within.self_ns += if innermost { ns } else { 0 };
                within.total_ns += if first { ns } else { 0 };
            }
        }
    }

    fn add_total(&mut self, sum: (u64, u64)) {
        self.total_ns += sum.0;
        self.total_samples += sum.1;
    }

    fn add(&mut self, other: Group) {
        self.self_ns += other.self_ns;
        self.self_samples += other.self_samples;
        self.total_ns += other.total_ns;
        self.total_samples += other.total_samples;
        for (func, ns) in other.mostly {
            *self.mostly.entry(func).or_default() += ns;
        }
        for (func, more) in other.functions {
            let within = self.functions.entry(func).or_default();
            within.self_ns += more.self_ns;
            within.total_ns += more.total_ns;
        }
    }
}

/// Moments that `--within` leaves, by thread.
pub(super) struct Windows {
    of: FxHashMap<ThreadIndex, Cover>,
    /// How many ranges they are.
    pub count: usize,
}

impl Windows {
    /// Ranges whose name contains a text; with `:N`, the Nth of them alone.
    pub fn of(rank: &RankTrace<'_>, within: &str) -> Windows {
        let (text, number) = text_and_number(within);
        let named = |span: &&HostSpan| range_name(rank, span.category, span.name).contains(text);
        let mut found: Vec<&HostSpan> = rank.spans(SpanKind::Nvtx).iter().filter(named).collect();
        found.sort_by_key(|span| (span.start_ns, std::cmp::Reverse(span.end_ns())));
        if let Some(number) = number {
            found = found.into_iter().skip(number).take(1).collect();
        }
        let count = found.len();
        let mut of: FxHashMap<ThreadIndex, Vec<Interval>> = FxHashMap::default();
        for span in found {
            of.entry(span.thread).or_default().push(span.interval());
        }
        let of = of.into_iter().map(|(thread, all)| (thread, all.into_iter().collect())).collect();
        Windows { of, count }
    }

    /// Whether a row is a sample within one.
    pub fn hold(&self, row: &Sample) -> bool {
        is_sample(row) == Some(true) && self.hold_at(row.thread, row.time_ns)
    }

    /// Whether a moment of a thread lies within one.
    pub fn hold_at(&self, thread: ThreadIndex, time_ns: u64) -> bool {
        let Some(cover) = self.of.get(&thread) else { return false };
        let parts = cover.parts();
        let after = parts.partition_point(|part| part.start <= time_ns);
        after.checked_sub(1).is_some_and(|last| time_ns < parts[last].end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::functions::Functions;
    use crate::fixture::Fixture;
    use crate::rank::Needs;
    use proptest::prelude::*;
    use tprof_trace::TraceFile;
    use tprof_trace::model::{Mark, Span};

    fn load(file: &TraceFile) -> RankTrace<'_> {
        let nvtx = Needs::spans(SpanKind::Nvtx);
        RankTrace::load(file, Needs::SAMPLES | Needs::ANNOTATIONS | nvtx)
    }

    fn sample(time_ns: u64, thread: u32) -> Sample {
        Sample {
            time_ns,
            thread,
            process: thread,
            weight_ns: 10,
            cpu: Some(0),
            ..Sample::default()
        }
    }

    fn range(thread: u32, start_ns: u64, duration_ns: u64) -> Span {
        let kind = SpanKind::Nvtx;
        Span { start_ns, duration_ns, thread, process: thread, kind, ..Span::default() }
    }

    fn told(groups: &Groups) -> Vec<(&str, u64, u64)> {
        let names = groups.keys().map(|label| label.as_ref().map_or("-", |(_, name)| name));
        names.zip(groups.values()).map(|(n, group)| (n, group.self_ns, group.total_ns)).collect()
    }

    #[test]
    fn samples_belong_to_the_innermost_range_and_to_the_step_around() {
        let mut made = Fixture::new();
        made.span(range(0, 100, 100), "ProfilerStep#7");
        made.span(range(0, 120, 50), "forward");
        made.span(range(0, 130, 20), "forward");
        made.span(range(0, 200, 100), "ProfilerStep#8");
        let mut samples: Vec<Sample> = [50, 110, 125, 135, 160, 250].map(|at| sample(at, 0)).into();
        // A worker of the same rank, without ranges of its own.
        samples.push(sample(140, 1));
        samples.push(Sample { cpu: None, weight_ns: 5, ..sample(0, 0) });
        made.writer.write(&mut samples).unwrap();
        let file = made.finish();
        let rank = load(&file);
        let split = Split::of(&rank, &rank.cpu, |_| true, true);
        assert_eq!(told(&split.steps), [("-", 10, 10), ("step 7", 50, 50), ("step 8", 10, 10)]);
        let ranges = [
            ("-", 20, 20),
            ("ProfilerStep#7", 10, 40),
            ("ProfilerStep#8", 10, 10),
            ("forward", 30, 30),
        ];
        assert_eq!(told(&split.ranges), ranges);
        assert_eq!(split.unsampled_ns, 5);
        let windows = Windows::of(&rank, "forward:1");
        assert_eq!(windows.count, 1);
        let cut = CpuTrace::load_where(&file, &mut Vec::new(), |row| windows.hold(row));
        assert_eq!(cut.rows, 1);
        let all = Windows::of(&rank, "forward");
        assert_eq!((all.count, samples_in(&file, &all)), (2, 3));
    }

    fn samples_in(file: &TraceFile, windows: &Windows) -> usize {
        file.blocks::<Sample>().flatten().filter(|row| windows.hold(row)).count()
    }

    #[test]
    fn what_lies_between_marks_stands_in_for_steps() {
        let mut made = Fixture::new();
        for (time_ns, name) in [(100, "warm"), (200, "train")] {
            let name = made.name(name);
            made.writer.mark(Mark { time_ns, process: None, name, kind: MarkKind::Mark });
        }
        let mut samples: Vec<Sample> = [50, 150, 250, 999].map(|at| sample(at, 0)).into();
        made.writer.write(&mut samples).unwrap();
        let file = made.finish();
        let rank = load(&file);
        let split = Split::of(&rank, &rank.cpu, |_| true, false);
        let steps = [("-", 10, 10), ("from mark warm", 10, 10), ("from mark train", 20, 20)];
        assert_eq!(told(&split.steps), steps);
        assert!(split.ranges.is_empty());
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_whole(
            ranges in prop::collection::vec((0..2_u32, 0..90_u64, 0..40_u64, 0..3_usize), 1..12),
            samples in prop::collection::vec((0..3_u32, 0..140_u64, 1..50_u64, any::<bool>()), 0..40),
        ) {
            let mut made = Fixture::new();
            for (thread, start_ns, duration_ns, name) in ranges {
                let names = ["a", "b", "ProfilerStep#3"];
                made.span(range(thread, start_ns, duration_ns), names[name]);
            }
            let rows = samples.iter().map(|(thread, time_ns, weight_ns, taken)| Sample {
                weight_ns: *weight_ns,
                cpu: taken.then_some(1),
                ..sample(*time_ns, *thread)
            });
            let mut rows: Vec<Sample> = rows.collect();
            made.writer.write(&mut rows).unwrap();
            let file = made.finish();
            let rank = load(&file);
            let split = Split::of(&rank, &rank.cpu, |_| true, true);
            let mut whole = Functions::default();
            whole.add_file(&rank.cpu);
            for groups in [&split.steps, &split.ranges] {
                let parts: u64 = groups.values().map(|group| group.self_ns).sum();
                if !groups.is_empty() {
                    prop_assert_eq!(parts + split.unsampled_ns, whole.running_ns);
                }
                for group in groups.values() {
                    prop_assert!(group.self_ns <= group.total_ns);
                }
            }
        }
    }
}
