//! Guesses the Python line behind a stack that has no Python frames. Stacks of allocations have
//! Python frames only with `--stacks python`. CPU samples in the same native functions do have
//! Python frames, so their line is the likely one. Of a stack that has only the interpreter, the line
//! is that of the samples next to the same moments.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use tprof_metrics::host::Place;
use tprof_rank::samples::{CpuTrace, Part, is_interpreter};
use tprof_rank::{Needs, RankTrace};
use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, Sample, ThreadIndex, ThreadState};

use crate::finding::SourceLine;

/// With fewer samples than this in the same functions, chance may decide which line they have.
const LEAST_SAMPLES: u64 = 3;
/// The smallest share of these samples' time that the line must have.
const LEAST_SHARE: f64 = 0.6;
/// The smallest share of the samples near some moments that the line must have. It is lower, because
/// a line is the one that ran when the Python functions of a sample were read, a moment later.
const LEAST_NEAR: f64 = 0.4;
/// A sample at most so long before or after a moment shows what the thread did at it, ns.
const NEAR_NS: u64 = 10_000_000;

/// Calls `find` with the CPU samples of a rank. The findings as a whole don't need them, so they are
/// read here, unless another report has read them.
pub(super) fn with_samples<T>(rank: &RankTrace<'_>, find: impl FnOnce(&CpuTrace) -> T) -> T {
    match rank.needs.has(Needs::SAMPLES) {
        true => find(&rank.cpu),
        false => find(&CpuTrace::load(rank.file)),
    }
}

/// Returns the likely Python line for a stack's frames, `f (libx.so)` or `f (a.cpp:3)`, innermost
/// first.
pub(super) fn likely_line(
    cpu: &CpuTrace,
    process: ProcessIndex,
    frames: &[Arc<str>],
) -> Option<SourceLine> {
    let functions: FxHashSet<&str> = frames.iter().filter_map(|frame| called(frame)).collect();
    let mut lines: Vec<(SourceLine, u64)> = Vec::new();
    let mut samples = 0;
    for stretch in cpu.stretches.iter().filter(|stretch| stretch.process == process) {
        let names = stretch.stack.iter().map(|id| &*cpu.names.get(*id).name);
        let shared: FxHashSet<&str> = names.filter(|name| functions.contains(name)).collect();
        if shared.is_empty() || shared.len() * 2 < functions.len() {
            continue;
        }
        let place = Place::of(
            Part::Unknown,
            ThreadState::Running,
            cpu.stack(process, stretch.id),
            &cpu.names,
        );
        if !place.file.ends_with(".py") || place.line == 0 {
            continue;
        }
        samples += stretch.samples;
        let line = SourceLine { function: place.function, file: place.file, line: place.line };
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, ns)) => *ns += stretch.weight_ns,
            None => lines.push((line, stretch.weight_ns)),
        }
    }
    let all_ns: u64 = lines.iter().map(|(_, ns)| ns).sum();
    let (line, ns) = lines.into_iter().max_by_key(|(_, ns)| *ns)?;
    let is_likely = samples >= LEAST_SAMPLES && ns as f64 >= LEAST_SHARE * all_ns as f64;
    is_likely.then_some(line)
}

/// A Python line that threads most likely ran at some moments.
pub(super) struct LikelyLine {
    pub line: SourceLine,
    /// Number of samples of the line near these moments.
    pub samples: u64,
    /// Number of samples in the interpreter near these moments.
    pub of: u64,
}

/// Returns the Python line that threads most likely ran at these moments: the one with most of the
/// samples in the interpreter that are near them.
pub(super) fn likely_line_at(
    file: &TraceFile,
    cpu: &CpuTrace,
    mut moments: Vec<(ThreadIndex, u64)>,
) -> Option<LikelyLine> {
    moments.sort_unstable();
    moments.dedup();
    let mut lines: Vec<(SourceLine, u64)> = Vec::new();
    let mut samples = 0;
    for row in file.blocks::<Sample>().flatten() {
        let (from, to) = (row.time_ns.saturating_sub(NEAR_NS), row.time_ns + NEAR_NS);
        let next = moments.partition_point(|moment| *moment < (row.thread, from));
        let is_near = moments.get(next).is_some_and(|moment| *moment <= (row.thread, to));
        if row.state != ThreadState::Running || row.stack == 0 || !is_near {
            continue;
        }
        // A thread that sleeps or is in a library's code makes no objects of the interpreter.
        let part = cpu.part(row.process, row.stack, row.state);
        if !matches!(part, Some(Part::Python | Part::PageFault)) {
            continue;
        }
        samples += 1;
        let stack = cpu.stack(row.process, row.stack);
        let place = Place::of(Part::Unknown, row.state, stack, &cpu.names);
        if !place.is_own || !place.file.ends_with(".py") || place.line == 0 {
            continue;
        }
        let line = SourceLine { function: place.function, file: place.file, line: place.line };
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, count)) => *count += 1,
            None => lines.push((line, 1)),
        }
    }
    let (line, count) = lines.into_iter().max_by_key(|(_, count)| *count)?;
    let is_likely = count >= LEAST_SAMPLES && count as f64 >= LEAST_NEAR * samples as f64;
    is_likely.then_some(LikelyLine { line, samples: count, of: samples })
}

/// Returns the function of a frame. Returns `None` for functions of the C library and the
/// interpreter, because any Python line may call these.
fn called(frame: &str) -> Option<&str> {
    let (function, place) = frame.strip_suffix(')')?.rsplit_once(" (")?;
    let any = ["libc.so", "ld-linux"].iter().any(|start| place.starts_with(start));
    let of_python =
        is_interpreter(place) || function.starts_with("Py") || function.starts_with("_Py");
    (!any && !of_python).then_some(function)
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::{SYNTHETIC_FRAME, Stack, Symbol};

    use super::*;

    /// Makes samples with two different stacks. `relu` samples are in the function `relu`, called
    /// from line 12. `mm` samples are in `mm`, called from line 15.
    fn sampled(relu: u64, mm: u64) -> CpuTrace {
        let mut made = Fixture::new();
        let stacks: [(&str, u32); 2] = [("at::relu", 12), ("at::mm", 15)];
        for (stack, (function, line)) in (1_u32..).zip(stacks) {
            let torch = (function, "", "libtorch_cpu.so", 0);
            let frames = [
                ("kernel", "", "libtorch_cpu.so", 0),
                torch,
                ("step", "/me/b.py", "[python]", line),
            ];
            let mut addresses = Vec::new();
            for (at, (function, file, module, line)) in frames.into_iter().enumerate() {
                let address = SYNTHETIC_FRAME | (u64::from(stack) * 16 + at as u64);
                let [function, file, module] = [function, file, module].map(|text| made.name(text));
                let symbol = Symbol { process: 0, address, depth: 0, function, file, line, module };
                made.writer.symbol(&symbol);
                addresses.push(address);
            }
            made.writer.stack(&Stack { process: 0, stack, end: 0, frames: addresses });
        }
        let row = |at: u64| Sample {
            time_ns: at,
            weight_ns: 1,
            stack: if at < relu { 1 } else { 2 },
            state: ThreadState::Running,
            cpu: Some(0),
            ..Sample::default()
        };
        let file = made.finish();
        CpuTrace::of_rows(&file, (0..relu + mm).map(row))
    }

    #[test]
    fn samples_near_the_same_moments_show_the_likely_line() {
        let mut made = Fixture::new();
        let [function, file, module] =
            ["keeps", "/me/leak.py", "[python]"].map(|text| made.name(text));
        let (address, depth, line) = (SYNTHETIC_FRAME | 16, 0, 7);
        let symbol = Symbol { process: 0, address, depth, function, file, line, module };
        made.writer.symbol(&symbol);
        made.writer.stack(&Stack { process: 0, stack: 1, end: 0, frames: vec![address] });
        let row = |at: u64| Sample {
            time_ns: at * 100_000_000,
            weight_ns: 1,
            stack: 1,
            state: ThreadState::Running,
            cpu: Some(0),
            ..Sample::default()
        };
        let mut rows: Vec<Sample> = (0..20).map(row).collect();
        made.writer.write(&mut rows.clone()).unwrap();
        let file = made.finish();
        let cpu = CpuTrace::of_rows(&file, rows.drain(..));
        let near = |of: std::ops::Range<u64>, off_ns: u64| {
            let moments = of.map(|at| (0, at * 100_000_000 + off_ns)).collect();
            likely_line_at(&file, &cpu, moments).map(|found| (found.line.line, found.samples))
        };
        assert_eq!(near(3..9, 5_000_000), Some((7, 6)));
        assert_eq!(near(3..5, 5_000_000), None, "too few");
        assert_eq!(near(3..9, 50_000_000), None, "none is near");
    }

    #[test]
    fn samples_in_the_same_functions_show_the_likely_line() {
        let frames = [
            "malloc (libc.so.6)",
            "at::relu (libtorch_cpu.so)",
            "_PyEval_EvalFrameDefault (python3.11)",
        ];
        let frames = frames.map(Arc::from);
        let line = |cpu: &CpuTrace| likely_line(cpu, 0, &frames).map(|line| line.line);
        assert_eq!(line(&sampled(5, 50)), Some(12));
        assert_eq!(line(&sampled(2, 50)), None, "too few");
        assert_eq!(likely_line(&sampled(5, 50), 0, &frames[..1]), None, "anything calls malloc");
    }
}
