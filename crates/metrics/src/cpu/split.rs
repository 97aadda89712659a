//! Splits the time on a core by training step and by range.
//!
//! Each sample belongs to one step and one innermost range, or is marked as outside of all, so that
//! the parts add up to the whole. Waits are not split, because the collector already adds up short
//! waits of many steps before it writes them.

use rustc_hash::FxHashMap;
use tprof_rank::RankTrace;
use tprof_rank::samples::CpuTrace;
use tprof_trace::model::{ProcessIndex, Sample, StackId};

use super::groups::Groups;
use super::ranges::{ChainId, ThreadRanges, range_name};
use super::steps::{Label, StepLookup};
use super::windows::is_sample;

/// CPU time by step and by range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Time by step; empty if there are no steps.
    pub steps: Groups,
    /// Time by range; empty if there are no ranges.
    pub ranges: Groups,
    /// Time on a core without a sample, ns.
    pub unsampled_ns: u64,
}

/// The key by which samples are added up: step, chain of ranges, process and stack.
type SampleGroup = (Option<u32>, ChainId, ProcessIndex, StackId);

impl Split {
    /// Splits the samples that `keep` selects; `trace` must have been made from the same samples.
    /// Steps, NVTX ranges and samples must have been loaded. With `data`, this also splits the time
    /// by function.
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
        // Errors are ignored here, since unreadable parts were reported when the samples were first
        // read.
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
                // A range that lies within a range of the same name counts once.
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

    /// Adds another rank's time.
    pub fn add(&mut self, other: Split) {
        for (into, from) in [(&mut self.steps, other.steps), (&mut self.ranges, other.ranges)] {
            for (label, group) in from {
                into.entry(label).or_default().add(group);
            }
        }
        self.unsampled_ns += other.unsampled_ns;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tprof_fixture::Fixture;
    use tprof_rank::Needs;
    use tprof_trace::TraceFile;
    use tprof_trace::model::{Mark, MarkKind, Span, SpanKind};

    use super::*;
    use crate::cpu::functions::Functions;
    use crate::cpu::windows::Windows;

    fn load(file: &TraceFile) -> RankTrace<'_> {
        let nvtx = Needs::spans(SpanKind::Nvtx);
        RankTrace::load(file, Needs::SAMPLES | Needs::STEPS | nvtx)
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

    fn times(groups: &Groups) -> Vec<(&str, u64, u64)> {
        let names = groups.keys().map(|label| label.as_ref().map_or("-", |(_, name)| name));
        names.zip(groups.values()).map(|(n, group)| (n, group.self_ns, group.total_ns)).collect()
    }

    #[test]
    fn samples_belong_to_their_innermost_range_and_their_step() {
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
        assert_eq!(times(&split.steps), [("-", 10, 10), ("step 7", 50, 50), ("step 8", 10, 10)]);
        let ranges = [
            ("-", 20, 20),
            ("ProfilerStep#7", 10, 40),
            ("ProfilerStep#8", 10, 10),
            ("forward", 30, 30),
        ];
        assert_eq!(times(&split.ranges), ranges);
        assert_eq!(split.unsampled_ns, 5);
        let windows = Windows::of(&rank, "forward:1");
        assert_eq!(windows.count, 1);
        let cut = CpuTrace::load_where(&file, |row| windows.hold(row));
        assert_eq!(cut.rows, 1);
        let all = Windows::of(&rank, "forward");
        assert_eq!((all.count, samples_in(&file, &all)), (2, 3));
    }

    fn samples_in(file: &TraceFile, windows: &Windows) -> usize {
        file.blocks::<Sample>().flatten().filter(|row| windows.hold(row)).count()
    }

    #[test]
    fn without_steps_the_time_between_marks_is_split() {
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
        assert_eq!(times(&split.steps), steps);
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
