//! Finds the steps of a file that is still being written, each as soon as it ends. The rules are
//! those for a whole file, applied to only the last ranges and marks.
//!
//! Updates that a gradient scaler skipped are ignored, so the step after one is longer.

use std::collections::BTreeMap;

use tprof_trace::model::{MarkKind, ProcessIndex, SpanKind};

use super::StepSource;
use super::explicit::{number_at_end, number_of};
use super::inherent::{self, StepSign};
use super::step::{Step, StepRange};
use super::windows::Windows;

/// Number of updates that are stored. Older updates do not affect new steps.
const MOST_UPDATES: usize = 256;
/// Number of fetches that are stored.
const MOST_FETCHES: usize = 1024;
/// Number of switches of recording that are stored.
const MOST_SWITCHES: usize = 256;
/// Once there are at least this many groups of updates, they show how many groups a step usually
/// has.
const LEAST_GROUPS: usize = 3;
/// Largest number of processes that are followed.
const MOST_PROCESSES: usize = 64;
/// Number of sources that are followed; marks and NVTX ranges count separately.
const SOURCES: usize = 5;

/// Whether a span with this kind and name shows a step in a growing file.
pub fn shows_step(kind: SpanKind, name: &str) -> bool {
    number_of(kind, name).is_some() || inherent::sign_of(kind, name).is_some()
}

/// Follows the steps of one file.
#[derive(Debug, Default)]
pub struct LiveSteps {
    processes: BTreeMap<ProcessIndex, ProcessSteps>,
    counts: [u64; SOURCES],
    new: Vec<(usize, Step)>,
}

/// Indices of sources, the most trusted first. The order is that of [`StepSource::ALL`], with marks
/// before NVTX ranges.
const MARKS: usize = 0;
const NVTX: usize = 1;
const PROFILER: usize = 2;
const OPTIMIZER: usize = 3;
const LOADER: usize = 4;

#[derive(Debug, Default)]
struct ProcessSteps {
    windows: Windows,
    marked: MarkedSteps,
    updates: Vec<StepRange>,
    fetches: Vec<StepRange>,
    /// Step number of the first stored end of updates.
    first: u64,
    /// End of the last step that updates showed, ns.
    settled_ns: u64,
    has_new: bool,
    /// For steps by batches: the last fetch. [`Self::batches`] is the number of these steps so far.
    last_fetch: Option<StepRange>,
    batches: u64,
}

/// Steps that marks show.
#[derive(Debug, Default)]
struct MarkedSteps {
    last: Option<(u64, u64)>,
    /// Whether some name doesn't end in a number, or the numbers don't rise.
    unnumbered: bool,
    count: u64,
}

impl LiveSteps {
    /// Adds a mark of any kind. The marks of a process must come in order of time.
    pub fn mark(
        &mut self,
        process: Option<ProcessIndex>,
        kind: MarkKind,
        time_ns: u64,
        name: &str,
    ) {
        if kind != MarkKind::Step {
            if process.is_none() {
                let all = self.processes.values_mut();
                all.for_each(|of| of.windows.take(kind, time_ns, name));
            } else if let Some(of) = self.of(process.unwrap_or(0)) {
                of.windows.take(kind, time_ns, name);
            }
            return;
        }
        let process = process.unwrap_or(0);
        let Some(of) = self.of(process) else { return };
        let step = of.marked.next(process, time_ns, name);
        let step = step.filter(|step| !of.windows.pause_within(step.start_ns, step.end_ns));
        self.ended(MARKS, step);
    }

    /// Adds a range for which [`shows_step`] holds.
    pub fn range(&mut self, range: StepRange, name: &str) {
        let StepRange { kind, process, start_ns, end_ns, .. } = range;
        let Some(of) = self.of(process) else { return };
        if let Some(number) = number_of(kind, name) {
            let source = if kind == SpanKind::Nvtx { NVTX } else { PROFILER };
            let is_whole = !of.windows.pause_within(start_ns, end_ns);
            let step = Step { start_ns, end_ns, process, number };
            return self.ended(source, is_whole.then_some(step));
        }
        match inherent::sign_of(kind, name) {
            Some(StepSign::Update) => {
                of.updates.push(range);
                of.has_new = true;
            }
            Some(StepSign::Fetch) => {
                of.fetches.push(range);
                let step = of.next_batch(range);
                self.ended(LOADER, step);
            }
            None => {}
        }
    }

    /// Returns the steps that ended since the last call, from the best source so far, in order of
    /// time.
    pub fn take(&mut self) -> Vec<Step> {
        for (process, of) in &mut self.processes {
            let steps = of.settle(*process);
            self.counts[OPTIMIZER] += steps.len() as u64;
            self.new.extend(steps.into_iter().map(|step| (OPTIMIZER, step)));
        }
        let best = self.best();
        let new = std::mem::take(&mut self.new).into_iter();
        let mut steps: Vec<Step> =
            new.filter(|(source, _)| Some(*source) == best).map(|(_, step)| step).collect();
        steps.sort_by_key(|step| step.end_ns);
        steps
    }

    /// Returns the source of the steps; `None` while there are no steps. A better source may appear
    /// later.
    pub fn source(&self) -> Option<StepSource> {
        Some(match self.best()? {
            MARKS | NVTX => StepSource::Explicit,
            PROFILER => StepSource::Profiler,
            OPTIMIZER => StepSource::Optimizer,
            _ => StepSource::Loader,
        })
    }

    /// Returns the number of ended steps from that source.
    pub fn count(&self) -> u64 {
        self.best().map_or(0, |source| self.counts[source])
    }

    fn best(&self) -> Option<usize> {
        self.counts.iter().position(|count| *count > 0)
    }

    fn of(&mut self, process: ProcessIndex) -> Option<&mut ProcessSteps> {
        let has_room = self.processes.len() < MOST_PROCESSES;
        if !has_room && !self.processes.contains_key(&process) {
            return None;
        }
        Some(self.processes.entry(process).or_default())
    }

    fn ended(&mut self, source: usize, step: Option<Step>) {
        self.counts[source] += u64::from(step.is_some());
        self.new.extend(step.map(|step| (source, step)));
    }
}

impl MarkedSteps {
    /// Returns the step that a mark ends.
    fn next(&mut self, process: ProcessIndex, time_ns: u64, name: &str) -> Option<Step> {
        let by_name = number_at_end(name).filter(|_| !self.unnumbered);
        let rises = |number: &u64| self.last.is_none_or(|(_, last)| *number > last);
        let number = by_name.filter(rises);
        self.unnumbered |= number.is_none();
        let before = self.last.replace((time_ns, number.unwrap_or(self.count)));
        self.count += 1;
        let (start_ns, number) = before?;
        Some(Step { start_ns, end_ns: time_ns, process, number })
    }
}

impl ProcessSteps {
    /// Returns the step by batches that a fetch ends.
    fn next_batch(&mut self, fetch: StepRange) -> Option<Step> {
        if self.last_fetch.is_some_and(|last| fetch.start_ns < last.end_ns) {
            return None;
        }
        let before = self.last_fetch.replace(fetch)?;
        let (start_ns, end_ns) = (before.start_ns, fetch.start_ns);
        let number = self.batches;
        self.batches += 1;
        let step = Step { start_ns, end_ns, process: fetch.process, number };
        Some(step).filter(|_| !self.windows.pause_within(start_ns, end_ns))
    }

    /// Returns the new steps by updates whose ends are final.
    fn settle(&mut self, process: ProcessIndex) -> Vec<Step> {
        self.windows.keep_last(MOST_SWITCHES);
        if self.fetches.len() > MOST_FETCHES {
            self.fetches.drain(..self.fetches.len() - MOST_FETCHES / 2);
        }
        if !std::mem::take(&mut self.has_new) {
            return Vec::new();
        }
        inherent::outermost(&mut self.updates);
        inherent::outermost(&mut self.fetches);
        let groups = inherent::ends_of_groups(&self.updates);
        let mut ends = inherent::last_of_each_batch(groups.clone(), &self.fetches);
        if groups.len() < LEAST_GROUPS {
            return Vec::new();
        }
        if self.is_open(&groups) {
            ends.pop();
        }
        let (fetches, windows) = (&self.fetches, &self.windows);
        let steps = inherent::between(process, &ends, fetches, windows, &[], self.first);
        let new = steps.iter().filter(|step| step.end_ns > self.settled_ns);
        let new = new.filter(|step| !windows.pause_within(step.start_ns, step.end_ns));
        let new: Vec<Step> = new.copied().collect();
        self.settled_ns = ends.last().copied().unwrap_or(0).max(self.settled_ns);
        self.forget(&ends, &steps);
        new
    }

    /// Whether the last group may still grow, since it has fewer updates than most, or its batch
    /// has fewer groups than most.
    fn is_open(&self, groups: &[u64]) -> bool {
        let until = |ns: &u64| self.updates.partition_point(|update| update.end_ns <= *ns);
        let fetched = |ns: &u64| self.fetches.partition_point(|fetch| fetch.end_ns <= *ns);
        let firsts = std::iter::once(0).chain(groups.iter().map(until));
        let sizes: Vec<usize> = firsts.zip(groups).map(|(from, ns)| until(ns) - from).collect();
        let batches: Vec<usize> =
            groups.chunk_by(|a, b| fetched(a) == fetched(b)).map(<[u64]>::len).collect();
        let is_short = |counts: &[usize]| match counts {
            [before @ .., last] => *last < inherent::usual(before.iter().copied()),
            [] => false,
        };
        is_short(&sizes) || !self.fetches.is_empty() && is_short(&batches)
    }

    /// If there are too many updates, drops the older half, up to the end of a step.
    fn forget(&mut self, ends: &[u64], steps: &[Step]) {
        if self.updates.len() <= MOST_UPDATES {
            return;
        }
        let middle = self.updates[self.updates.len() / 2].end_ns;
        let Some(at) = ends.iter().rposition(|end_ns| *end_ns <= middle) else {
            // No step ends in the older half, since all of it is one group of updates. Drop it
            // anyway.
            self.updates.drain(..self.updates.len() / 2);
            return;
        };
        let number = steps.iter().find(|step| step.end_ns == ends[at]).map(|step| step.number);
        let number = number.unwrap_or(self.first.saturating_add(at as u64));
        self.first = number.saturating_add(1);
        self.updates.retain(|update| update.end_ns > ends[at]);
        self.fetches.retain(|fetch| fetch.start_ns >= ends[at]);
        self.windows.forget_before(ends[at]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Steps, of_file};
    use super::*;
    use tprof_trace::model::{Mark, NameId, Span, SpanOutline};
    use tprof_trace::{TraceFile, TraceHeader, TraceWriter};

    const NEXT: &str = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
    const SGD: &str = "Optimizer.step#SGD.step";
    const ADAM: &str = "Optimizer.step#Adam.step";

    /// A row of a test: a range of 5 ns, or a mark.
    #[derive(Clone, Copy)]
    enum Row {
        Range(SpanKind, &'static str),
        Mark(MarkKind, &'static str),
    }

    const fn annotation(name: &'static str) -> Row {
        Row::Range(SpanKind::Annotation, name)
    }

    /// Finds the steps of these rows in a whole file.
    fn whole(rows: &[(u64, Row)]) -> Steps {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let mut spans: Vec<Span> = Vec::new();
        for (start_ns, row) in rows.iter().copied() {
            match row {
                Row::Range(kind, name) => {
                    let name = writer.name(name);
                    spans.push(Span { start_ns, duration_ns: 5, kind, name, ..Span::default() });
                }
                Row::Mark(kind, name) => {
                    let (process, name) = (Some(0), writer.name(name));
                    writer.mark(Mark { time_ns: start_ns, process, name, kind });
                }
            }
        }
        writer.write(&mut spans).unwrap();
        writer.finish().unwrap();
        of_file(&TraceFile::open(&path).unwrap(), None)
    }

    /// Follows the rows, `at_once` rows at a time, and returns the steps in the order of their
    /// ends.
    fn followed(rows: &[(u64, Row)], at_once: usize) -> (Option<StepSource>, Vec<Step>) {
        let (mut live, mut source) = (LiveSteps::default(), None);
        let mut steps = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        for rows in rows.chunks(at_once) {
            for (start_ns, row) in rows.iter().copied() {
                match row {
                    Row::Range(kind, name) => {
                        let id = names.iter().position(|known| *known == name);
                        let id = id.unwrap_or_else(|| {
                            names.push(name);
                            names.len() - 1
                        });
                        let (name_id, duration_ns) = (NameId(id as u32 + 1), 5);
                        let span = SpanOutline {
                            start_ns,
                            duration_ns,
                            kind,
                            name: name_id,
                            ..SpanOutline::default()
                        };
                        live.range(StepRange::of(&span), name);
                    }
                    Row::Mark(kind, name) => live.mark(Some(0), kind, start_ns, name),
                }
            }
            let (before, new) = (source, live.take());
            source = live.source();
            if source != before {
                // A more trusted source has appeared, whose steps replace the earlier ones.
                steps.clear();
            }
            steps.extend(new);
        }
        (source, steps)
    }

    fn check_follows_whole_file(rows: &[(u64, Row)], held_back: usize) {
        let expected = whole(rows);
        for at_once in [1, 2, 7, 1000] {
            let (source, steps) = followed(rows, at_once);
            assert_eq!(source, expected.source);
            assert_eq!(steps, expected.all[..expected.all.len() - held_back], "{at_once} at once");
        }
    }

    #[test]
    fn steps_of_every_source_are_those_of_the_whole_file() {
        let each = |rows: &[(u64, Row)], count: u64| -> Vec<(u64, Row)> {
            let at = |step: u64| rows.iter().map(move |(at, row)| (1000 + 100 * step + at, *row));
            (0..count).flat_map(at).collect()
        };
        check_follows_whole_file(&each(&[(50, annotation(SGD))], 12), 0);
        check_follows_whole_file(&each(&[(0, annotation(NEXT)), (50, annotation(SGD))], 700), 0);
        // Steps that accumulate the gradients of two batches; steps with a group of two optimizers;
        // steps with two optimizers of one class.
        let (next, sgd, adam) = (annotation(NEXT), annotation(SGD), annotation(ADAM));
        check_follows_whole_file(&each(&[(0, next), (40, next), (80, sgd)], 700), 0);
        check_follows_whole_file(&each(&[(0, next), (50, adam), (80, sgd)], 700), 0);
        check_follows_whole_file(&each(&[(0, next), (50, adam), (80, adam)], 12), 0);
        check_follows_whole_file(&each(&[(0, next)], 12), 0);
        check_follows_whole_file(&each(&[(0, Row::Range(SpanKind::Nvtx, "step 7"))], 12), 0);
        check_follows_whole_file(&each(&[(0, Row::Mark(MarkKind::Step, "step"))], 12), 0);
    }

    #[test]
    fn marks_with_numbers_and_pauses_are_those_of_the_whole_file() {
        let mark = |kind, name| Row::Mark(kind, name);
        let step = |name| mark(MarkKind::Step, name);
        let (on, off) = (MarkKind::RecordingOn, MarkKind::RecordingOff);
        let rows = [
            (100, step("step 4")),
            (200, step("step 5")),
            (300, step("step 6")),
            (301, mark(off, "--schedule")),
            (800, mark(on, "cycle 2: step 11 (--schedule)")),
            (801, step("step 11")),
            (900, step("step 12")),
        ];
        check_follows_whole_file(&rows, 0);
        let updates = [
            (100, mark(on, "cycle 1: step 4 (--schedule)")),
            (195, annotation(SGD)),
            (295, annotation(SGD)),
            (301, mark(off, "--schedule")),
            (800, mark(on, "cycle 2: step 11 (--schedule)")),
            (895, annotation(SGD)),
            (995, annotation(SGD)),
        ];
        check_follows_whole_file(&updates, 0);
    }
}
