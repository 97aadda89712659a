//! Finds steps that a person or a program marks: by ranges with step numbers, or by marks.

use tprof_trace::TraceFile;
use tprof_trace::model::{MarkKind, NameId, ProcessIndex, SpanKind};
use tprof_trace::pytorch::PROFILER_STEP;

use super::step::{Step, StepRange};

/// Names of programs' NVTX ranges around a step, in upper or lower case. The step's number follows,
/// after a space or one of `#_:=`.
const RANGE_NAMES: [&str; 3] = ["step", "iteration", "profilerstep"];

/// Returns the step number in the name of a range of this kind; `None` if the range isn't one of a
/// step.
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

/// Returns the step number in an annotation's name; `None` if the annotation isn't one of a step.
pub fn annotated_number(name: &str) -> Option<u64> {
    name.strip_prefix(PROFILER_STEP)?.parse().ok()
}

/// Returns the steps that ranges of one kind cover.
pub(super) fn of_ranges(file: &TraceFile, ranges: &[StepRange], of: SpanKind) -> Vec<Step> {
    let step = |range: &StepRange| {
        let StepRange { kind, name, process, start_ns, end_ns } = *range;
        Some(Step { start_ns, end_ns, process, number: number_of(kind, file.name(name))? })
    };
    ranges.iter().filter(|range| range.kind == of).filter_map(step).collect()
}

/// Returns the steps that marks show: each mark begins a step, which lasts until the next mark of
/// its process. The time after the last mark isn't a step: its end is not recorded, and it contains
/// the job's last checkpoint and evaluation, so it would be the longest step of all.
///
/// A mark without a process belongs to the file's first process.
pub(super) fn of_marks(file: &TraceFile) -> Vec<Step> {
    let begun = begun(file);
    let pairs = begun.windows(2).filter(|pair| pair[0].process == pair[1].process);
    pairs.map(|pair| Step { end_ns: pair[1].start_ns, ..pair[0] }).collect()
}

/// Returns the steps that begin at the last mark of each process and have no recorded end.
pub fn unended(file: &TraceFile) -> Vec<Step> {
    let begun = begun(file);
    begun.chunk_by(|a, b| a.process == b.process).filter_map(|of| of.last().copied()).collect()
}

/// Returns a step for each mark, by process and in order. Their ends are not set.
fn begun(file: &TraceFile) -> Vec<Step> {
    let marks = file.marks().iter().filter(|mark| mark.kind == MarkKind::Step);
    let mut marks: Vec<(ProcessIndex, u64, NameId)> =
        marks.map(|mark| (mark.process.unwrap_or(0), mark.time_ns, mark.name)).collect();
    marks.sort_by_key(|(process, time_ns, _)| (*process, *time_ns));
    let mut steps = Vec::new();
    for marks in marks.chunk_by(|a, b| a.0 == b.0) {
        let numbers = numbers_of(marks.iter().map(|(_, _, name)| file.name(*name)));
        for (&(process, start_ns, _), number) in marks.iter().zip(numbers) {
            steps.push(Step { start_ns, end_ns: u64::MAX, process, number });
        }
    }
    steps
}

/// Returns the number of marks of steps.
pub(super) fn mark_count(file: &TraceFile) -> usize {
    file.marks().iter().filter(|mark| mark.kind == MarkKind::Step).count()
}

/// Returns the numbers at the ends of names, if all names have one and these rise. Otherwise
/// returns 0, 1, 2, ….
fn numbers_of<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> Vec<u64> {
    let count = names.len() as u64;
    let numbers: Option<Vec<u64>> = names.map(number_at_end).collect();
    numbers
        .filter(|numbers| numbers.is_sorted_by(|a, b| a < b))
        .unwrap_or_else(|| (0..count).collect())
}

pub(super) fn number_at_end(name: &str) -> Option<u64> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name[name.len() - digits..].parse().ok()
}
