//! Guesses the Python line behind a stack that has no Python frames. Stacks of allocations have
//! Python frames only with `--stacks python`. CPU samples in the same native functions do have
//! Python frames, so their line is the likely one.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use tprof_metrics::host::Place;
use tprof_rank::samples::{CpuTrace, Part, is_interpreter};
use tprof_trace::model::{ProcessIndex, ThreadState};

use crate::finding::SourceLine;

/// With fewer samples than this in the same functions, chance may decide which line they have.
const LEAST_SAMPLES: u64 = 3;
/// The smallest share of these samples' time that the line must have.
const LEAST_SHARE: f64 = 0.6;

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
    use tprof_trace::model::{SYNTHETIC_FRAME, Sample, Stack, Symbol, ThreadState};

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
