//! Finds lines of the user's code by the CPU samples that were taken within calls of a library.
//!
//! Calls of the device's libraries have no Python stack of their own. But samples that were taken
//! while a thread was in such a call have one.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_metrics::host::Place;
use tprof_rank::HostSpan;
use tprof_rank::base::intervals::{Cover, Interval, Measure};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::{FrameFunctions, FunctionTable, Part};
use tprof_trace::model::{ProcessIndex, SampleMoment, SpanKind, StackId, ThreadIndex, ThreadState};

use super::Scene;
use crate::finding::SourceLine;

/// If no sample lies within a call, samples at most this far from the call are used, ns.
const MOST_APART_NS: u64 = 10_000_000;

/// The samples within calls, by line.
#[derive(Clone, Debug, Default)]
pub(crate) struct SampledCalls {
    /// Lines of the user's code with the time that samples in them stand for, most first.
    pub lines: Vec<(SourceLine, u64)>,
    /// Time of the samples whose stack contains a function that passes `is_named`, ns.
    pub named_ns: u64,
    /// Time of all samples, ns.
    pub all_ns: u64,
}

impl SampledCalls {
    /// Returns the line with the most time.
    pub fn line(&self) -> Option<SourceLine> {
        self.lines.first().map(|(line, _)| line.clone())
    }
}

/// The source line of a stack, and whether one of its functions passes `is_named`.
type LineAndName = (Option<SourceLine>, bool);

impl Scene<'_> {
    /// Sums the samples of the calls' threads that lie within these calls.
    pub fn sampled_in(&self, calls: &[usize], is_named: impl Fn(&str) -> bool) -> SampledCalls {
        let calls = calls.iter().map(|&at| &self.rank.calls[at]);
        let within = calls.map(|call: &HostSpan| (call.thread, call.interval()));
        self.sampled(within, is_named)
    }

    /// Returns the line that has most of the samples within these calls. Without such samples, uses
    /// the samples between the previous operator and each call. Without these, returns only a
    /// function, from samples close to the calls. Returns `None` if texts are not needed.
    pub fn line_of_calls(&self, calls: &[usize]) -> Option<SourceLine> {
        if self.is_brief {
            return None;
        }
        let within = self.sampled_in(calls, |_| false).line();
        let on_the_way = || self.sampled(self.ways_to(calls).into_iter(), |_| false).line();
        within.or_else(on_the_way).or_else(|| self.function_around(calls))
    }

    /// Returns the function that has most of the samples close to the calls. The result has no
    /// line, because the sampled line may not be the line that makes the call: in a loop, it may be
    /// another one.
    fn function_around(&self, calls: &[usize]) -> Option<SourceLine> {
        let around = |&at: &usize| {
            let call = &self.rank.calls[at];
            let from_ns = call.start_ns.saturating_sub(MOST_APART_NS);
            let until_ns = call.end_ns().saturating_add(MOST_APART_NS);
            (call.thread, Interval::new(from_ns, until_ns))
        };
        let sampled = self.sampled(calls.iter().map(around), |_| false);
        let mut functions: Vec<(SourceLine, u64)> = Vec::new();
        for (line, ns) in sampled.lines {
            let function = SourceLine { line: 0, ..line };
            match functions.iter_mut().find(|(known, _)| *known == function) {
                Some((_, sum)) => *sum += ns,
                None => functions.push((function, ns)),
            }
        }
        functions.sort_rows_by_key(|(_, ns)| Reverse(*ns));
        functions.into_iter().next().map(|(function, _)| function)
    }

    /// Returns for each call the interval from the end of the last outermost operator before the
    /// call, on the same thread, to the end of the call.
    fn ways_to(&self, calls: &[usize]) -> Vec<(ThreadIndex, Interval)> {
        let mut ends: FxHashMap<ThreadIndex, Vec<u64>> = FxHashMap::default();
        let mut open: FxHashMap<ThreadIndex, u64> = FxHashMap::default();
        for span in self.rank.spans(SpanKind::Operator) {
            let until = open.entry(span.thread).or_default();
            if span.start_ns >= *until {
                *until = span.end_ns();
                ends.entry(span.thread).or_default().push(span.end_ns());
            }
        }
        let way = |&at: &usize| {
            let call = &self.rank.calls[at];
            let ends = ends.get(&call.thread)?;
            let before = ends.partition_point(|end| *end <= call.start_ns).checked_sub(1)?;
            Some((call.thread, Interval::new(ends[before], call.end_ns())))
        };
        calls.iter().filter_map(way).collect()
    }

    /// Returns the line of the thread's sample that is closest to a moment; `None` if no sample is
    /// close.
    pub fn line_near(&self, thread: ThreadIndex, time_ns: u64) -> Option<SourceLine> {
        let from_ns = time_ns.saturating_sub(MOST_APART_NS);
        let near = Interval::new(from_ns, time_ns.saturating_add(MOST_APART_NS));
        let mut lines = LinesOfStacks::of(self, |_: &str| false);
        let blocks = self.rank.file.blocks_between::<SampleMoment>(near.start, near.end);
        let rows = blocks.flatten().filter(|row| row.thread == thread && row.stack != 0);
        let rows = rows.filter(|row| extent(row).overlap(near).length() > 0);
        let apart = |row: &SampleMoment| {
            let extent = extent(row);
            extent.start.saturating_sub(time_ns) + time_ns.saturating_sub(extent.end)
        };
        let closest = rows.min_by_key(apart)?;
        lines.known(closest.process, closest.stack).0.clone()
    }

    /// Returns the source line of a stack that was recorded with a call.
    pub fn line_of_stack(&self, process: ProcessIndex, stack: StackId) -> Option<SourceLine> {
        LinesOfStacks::of(self, |_: &str| false).known(process, stack).0.clone()
    }

    /// Sums the samples of threads within these intervals.
    pub fn sampled(
        &self,
        within: impl Iterator<Item = (ThreadIndex, Interval)>,
        is_named: impl Fn(&str) -> bool,
    ) -> SampledCalls {
        let mut intervals: FxHashMap<ThreadIndex, Vec<Interval>> = FxHashMap::default();
        for (thread, interval) in within {
            intervals.entry(thread).or_default().push(interval);
        }
        let Some(span) = Interval::hull(intervals.values().flatten().copied()) else {
            return SampledCalls::default();
        };
        let covers: FxHashMap<ThreadIndex, Cover> =
            intervals.into_iter().map(|(thread, all)| (thread, Cover::of(all))).collect();
        let measures: FxHashMap<ThreadIndex, Measure<'_>> =
            covers.iter().map(|(thread, cover)| (*thread, cover.measure())).collect();
        let mut by_stack: FxHashMap<(ProcessIndex, StackId), u64> = FxHashMap::default();
        for row in self.rank.file.blocks_between::<SampleMoment>(0, span.end).flatten() {
            let Some(measure) = measures.get(&row.thread).filter(|_| row.stack != 0) else {
                continue;
            };
            let ns = match row.state {
                // A sample on a core shows where the thread was at one moment, not over an
                // interval.
                ThreadState::Running => {
                    let at = Interval::new(row.time_ns, row.time_ns.saturating_add(1));
                    if measure.within(at) > 0 { row.weight_ns } else { 0 }
                }
                _ => measure.within(extent(&row)),
            };
            if ns == 0 {
                continue;
            }
            *by_stack.entry((row.process, row.stack)).or_default() += ns;
        }
        let mut lines = LinesOfStacks::of(self, is_named);
        let mut found = SampledCalls::default();
        let mut sums: BTreeMap<(String, u32, String), (SourceLine, u64)> = BTreeMap::new();
        for ((process, stack), ns) in by_stack {
            let (line, named) = lines.known(process, stack);
            found.all_ns += ns;
            found.named_ns += if *named { ns } else { 0 };
            if let Some(line) = line {
                let key = (line.file.clone(), line.line, line.function.clone());
                sums.entry(key).or_insert_with(|| (line.clone(), 0)).1 += ns;
            }
        }
        found.lines = sums.into_values().collect();
        found.lines.sort_rows_by_key(|(_, ns)| Reverse(*ns));
        found
    }
}

/// Returns the interval that a sample stands for.
fn extent(row: &SampleMoment) -> Interval {
    match row.state {
        ThreadState::Running => {
            Interval::new(row.time_ns.saturating_sub(row.weight_ns), row.time_ns)
        }
        _ => Interval::new(row.time_ns, row.time_ns.saturating_add(row.weight_ns)),
    }
}

/// Source lines of stacks. Each stack is looked up only once.
struct LinesOfStacks<'s, F: Fn(&str) -> bool> {
    functions: FrameFunctions<'s>,
    names: FunctionTable,
    known: FxHashMap<(ProcessIndex, StackId), LineAndName>,
    is_named: F,
}

impl<'s, F: Fn(&str) -> bool> LinesOfStacks<'s, F> {
    fn of(scene: &'s Scene<'_>, is_named: F) -> LinesOfStacks<'s, F> {
        LinesOfStacks {
            functions: FrameFunctions::new(scene.rank.file),
            names: FunctionTable::default(),
            known: FxHashMap::default(),
            is_named,
        }
    }

    fn known(&mut self, process: ProcessIndex, stack: StackId) -> &LineAndName {
        let LinesOfStacks { functions, names, known, is_named } = self;
        known.entry((process, stack)).or_insert_with(|| {
            let stack = functions.stack(process, stack, names);
            let named = stack.functions.iter().any(|id| is_named(&names.get(*id).name));
            let place = Place::of(Part::Unknown, ThreadState::Running, &stack, names);
            let line = SourceLine { function: place.function, file: place.file, line: place.line };
            // A library function without a line doesn't help the user, so leave it out.
            (Some(line).filter(|line| line.line > 0 && !line.file.is_empty()), named)
        })
    }
}
