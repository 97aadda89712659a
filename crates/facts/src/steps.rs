//! Training steps of a file: which there are, their numbers, and when each began and
//! ended on the host.
//!
//! One source gives all steps of a file, the first of these that has any:
//! 1. annotations `ProfilerStep#5`, as torch.profiler writes them: a step lasts as long as
//!    its annotation;
//! 2. NVTX ranges `step 5`, `iteration 5` or `ProfilerStep#5`, of any domain;
//! 3. step marks ([`MarkKind::Step`]), each of which begins a step that lasts until the
//!    next mark of its process. The time after the last mark has no recorded end
//!    (the job saves, evaluates and ends there), so it is no step: it would be the longest
//!    of all.
//!
//! A step has the number that its source gave it: the one in its annotation's name, or the
//! one that its mark's name ends in, where all marks of the process have one and these
//! rise. Otherwise steps are numbered by process, from 0.
//!
//! A further source is one function here and one line in [`of_parts`], at its rank.

use tprof_trace::TraceFile;
use tprof_trace::model::{MarkKind, NameId, ProcessIndex, SpanKind, SpanOutline};

/// How torch.profiler names the annotation around a step; its number follows.
pub const PROFILER_STEP: &str = "ProfilerStep#";
/// How programs name NVTX ranges around a step, in any case; its number follows, after a space
/// or one of `#_:=`.
const RANGE_NAMES: [&str; 3] = ["step", "iteration", "profilerstep"];

/// A training step of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// When it began on the host, ns.
    pub start_ns: u64,
    /// When it was over, ns.
    pub end_ns: u64,
    /// Its process.
    pub process: ProcessIndex,
    /// Its number as its source gave it; without one, its place, from 0.
    pub number: u64,
}

/// A range that may be a step.
#[derive(Clone, Copy, Debug)]
pub struct StepRange {
    /// Of what kind: annotation or NVTX.
    pub kind: SpanKind,
    /// What it is called.
    pub name: NameId,
    /// Its process.
    pub process: ProcessIndex,
    /// When it began, ns.
    pub start_ns: u64,
    /// When it was over, ns.
    pub end_ns: u64,
}

/// Steps of a file in order of time.
pub fn of_file(file: &TraceFile) -> Vec<Step> {
    let spans = file.blocks::<SpanOutline>().flatten();
    let ranges = spans.filter(|span| matches!(span.kind, SpanKind::Annotation | SpanKind::Nvtx));
    of_parts(file, ranges.map(|span| StepRange::of(&span)).collect())
}

impl StepRange {
    /// Of a span.
    pub fn of(span: &SpanOutline) -> StepRange {
        let end_ns = span.start_ns.saturating_add(span.duration_ns);
        let SpanOutline { kind, name, process, start_ns, .. } = *span;
        StepRange { kind, name, process, start_ns, end_ns }
    }
}

/// As [`of_file`], for a reader that holds the file's annotations and NVTX ranges, or those of
/// them that [`number_of`] knows.
pub fn of_parts(file: &TraceFile, ranges: Vec<StepRange>) -> Vec<Step> {
    let mut steps = of_ranges(file, &ranges, SpanKind::Annotation);
    if steps.is_empty() {
        steps = of_ranges(file, &ranges, SpanKind::Nvtx);
    }
    if steps.is_empty() {
        steps = of_marks(file);
    }
    steps.sort_unstable();
    steps.dedup();
    steps
}

/// Number of a step by the name of a range of this kind, if that is one of a step.
pub fn number_of(kind: SpanKind, name: &str) -> Option<u64> {
    if kind == SpanKind::Annotation {
        return annotated_number(name);
    }
    let at = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (words, digits) = name.split_at(at);
    let word = words.trim_end_matches([' ', '#', '_', ':', '=']);
    let is_step = word.len() < words.len()
        && RANGE_NAMES.iter().any(|known| known.eq_ignore_ascii_case(word));
    digits.parse().ok().filter(|_| is_step && kind == SpanKind::Nvtx)
}

/// Number of a step by its annotation's name, if that is one of a step.
pub fn annotated_number(name: &str) -> Option<u64> {
    name.strip_prefix(PROFILER_STEP)?.parse().ok()
}

fn of_ranges(file: &TraceFile, ranges: &[StepRange], of: SpanKind) -> Vec<Step> {
    let step = |range: &StepRange| {
        let StepRange { kind, name, process, start_ns, end_ns } = *range;
        Some(Step { start_ns, end_ns, process, number: number_of(kind, file.name(name))? })
    };
    ranges.iter().filter(|range| range.kind == of).filter_map(step).collect()
}

/// A mark without a process counts as one of the file's first process.
fn of_marks(file: &TraceFile) -> Vec<Step> {
    let marks = file.marks().iter().filter(|mark| mark.kind == MarkKind::Step);
    let mut marks: Vec<(ProcessIndex, u64, NameId)> =
        marks.map(|mark| (mark.process.unwrap_or(0), mark.time_ns, mark.name)).collect();
    marks.sort_by_key(|(process, time_ns, _)| (*process, *time_ns));
    let mut steps = Vec::new();
    for marks in marks.chunk_by(|a, b| a.0 == b.0) {
        let numbers = numbers_of(marks.iter().map(|(_, _, name)| file.name(*name)));
        for (pair, number) in marks.windows(2).zip(numbers) {
            let [(process, start_ns, _), (_, end_ns, _)] = [pair[0], pair[1]];
            steps.push(Step { start_ns, end_ns, process, number });
        }
    }
    steps
}

/// Numbers that names end in, if all do and these rise; else 0, 1, 2, ….
fn numbers_of<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> Vec<u64> {
    let count = names.len() as u64;
    let numbers: Option<Vec<u64>> = names.map(number_at_end).collect();
    numbers
        .filter(|numbers| numbers.is_sorted_by(|a, b| a < b))
        .unwrap_or_else(|| (0..count).collect())
}

fn number_at_end(name: &str) -> Option<u64> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name[name.len() - digits..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::model::{Mark, Span};
    use tprof_trace::{TraceHeader, TraceWriter};

    type Marks<'a> = &'a [(u32, u64, &'a str)];

    fn steps(marks: Marks<'_>, annotations: &[(u64, &str)]) -> Vec<(u32, u64, u64, u64)> {
        let ranges: Vec<_> =
            annotations.iter().map(|(at, name)| (SpanKind::Annotation, *at, *name)).collect();
        steps_of(marks, &ranges)
    }

    fn steps_of(marks: Marks<'_>, ranges: &[(SpanKind, u64, &str)]) -> Vec<(u32, u64, u64, u64)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        for (process, time_ns, name) in marks {
            let (process, name) = (Some(*process), writer.name(name));
            writer.mark(Mark { time_ns: *time_ns, process, name, kind: MarkKind::Step });
        }
        let mut spans: Vec<Span> = Vec::new();
        for (kind, start_ns, name) in ranges {
            let (kind, start_ns, name) = (*kind, *start_ns, writer.name(name));
            spans.push(Span { start_ns, duration_ns: 10, kind, name, ..Span::default() });
        }
        writer.write(&mut spans).unwrap();
        writer.finish().unwrap();
        let all = of_file(&TraceFile::open(&path).unwrap());
        all.iter().map(|step| (step.process, step.number, step.start_ns, step.end_ns)).collect()
    }

    #[test]
    fn annotations_come_before_marks() {
        let annotations = [(100, "ProfilerStep#8"), (70, "ProfilerStep#7"), (90, "mine")];
        assert_eq!(
            steps(&[(0, 5, "a"), (0, 6, "b")], &annotations),
            [(0, 7, 70, 80), (0, 8, 100, 110)]
        );
    }

    #[test]
    fn nvtx_ranges_come_after_annotations_and_before_marks() {
        let ranges = [(SpanKind::Nvtx, 70, "Step 7"), (SpanKind::Nvtx, 90, "step_8")];
        let marks = [(0, 5, "a"), (0, 6, "b")];
        assert_eq!(steps_of(&marks, &ranges), [(0, 7, 70, 80), (0, 8, 90, 100)]);
        let all = [ranges[0], (SpanKind::Annotation, 20, "ProfilerStep#1")];
        assert_eq!(steps_of(&marks, &all), [(0, 1, 20, 30)]);
    }

    #[test]
    fn a_range_of_a_step_is_named_so() {
        let number = |name| number_of(SpanKind::Nvtx, name);
        for name in ["step 12", "STEP#12", "iteration: 12", "ProfilerStep#12", "step__12"] {
            assert_eq!(number(name), Some(12), "{name}");
        }
        for name in ["step", "step12", "12", " 12", "steps 12", "warm-up step 12", "step x"] {
            assert_eq!(number(name), None, "{name}");
        }
        assert_eq!(number("step 99999999999999999999"), None);
        assert_eq!(number_of(SpanKind::Annotation, "step 12"), None);
    }

    #[test]
    fn a_mark_begins_a_step_and_the_last_one_has_no_end() {
        let marks = [(1, 5, "s"), (0, 30, "s"), (0, 10, "s"), (0, 20, "s"), (1, 9, "s")];
        assert_eq!(steps(&marks, &[]), [(1, 0, 5, 9), (0, 0, 10, 20), (0, 1, 20, 30)]);
        assert_eq!(steps(&[(0, 5, "step 3")], &[]), []);
    }

    #[test]
    fn names_give_numbers_where_all_have_one_that_rises() {
        let numbers = |names: &[&'static str]| -> Vec<u64> {
            let marks: Vec<_> = names.iter().zip(1..).map(|(&name, at)| (0, at, name)).collect();
            steps(&marks, &[]).iter().map(|step| step.1).collect()
        };
        assert_eq!(numbers(&["step 50", "step 51", "step 60"]), [50, 51]);
        assert_eq!(numbers(&["resnet50", "resnet50", "resnet50"]), [0, 1]);
        assert_eq!(numbers(&["warm-up", "step 7", "step 8"]), [0, 1]);
        assert_eq!(numbers(&["größe99999999999999999999", "1", "2"]), [0, 1]);
    }
}
