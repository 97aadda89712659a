//! Adds data from logs of `torch.compile`: a lane of compilations, and the source lines of kernels.

use rustc_hash::FxHashMap;
use tprof_facts::compile::{RankCompile, ReadLog};
use tprof_trace::compile_log::CompiledFrame;

use super::events::{Event, EventKind, Lane, LaneKind, Lanes};
use super::processes::Processes;
use crate::{OpenRank, Written};

/// Adds a lane for each process that compiled, if its log is on the run's clock.
pub(crate) fn compilations(
    part: &OpenRank<'_>,
    compile: &RankCompile,
    written: &mut Written,
    processes: &mut Processes,
    lanes: &mut Lanes,
) {
    written.notes.extend(compile.problems.iter().cloned());
    for read in &compile.logs {
        let mut events: Vec<Event> = Vec::new();
        for frame in &read.log.frames {
            let times = read.interval_ns(frame);
            let times = times.filter(|(start, end)| part.window.touches(*start, *end));
            if let Some((start_ns, end_ns)) = times {
                events.push(Event {
                    start_ns: part.since_start(start_ns),
                    duration_ns: end_ns - start_ns,
                    name: lanes.names.of(&name(frame)),
                    kind: EventKind::Range,
                    detail: lanes.details.of(&detail(frame)),
                    correlation: None,
                    kin: 0,
                });
            }
        }
        written.events += events.len() as u64;
        written.left_out += (read.log.frames.len() - events.len()) as u64;
        if !events.is_empty() {
            let process = processes.index(part, process_of(part, read));
            let (kind, name) = (LaneKind::Compilations, "torch.compile".to_owned());
            lanes.lanes.push(Lane { kind, process, name, thread: None, device: None, events });
        }
    }
}

/// Returns, for each kernel, the lines of the user's source that it was generated from. The page
/// shows them in the kernel's details.
pub(crate) fn sources(compile: &RankCompile) -> FxHashMap<&str, String> {
    let all = compile.kernel_sources().into_iter();
    all.map(|(name, lines)| (name, format!("from {}", lines.join(", ")))).collect()
}

/// Returns the process that wrote a log. If the log names no process, returns the first one.
fn process_of(part: &OpenRank<'_>, read: &ReadLog) -> u32 {
    let processes = part.trace.processes();
    let wrote = processes.iter().find(|process| Some(process.pid) == read.log.pid);
    wrote.or(processes.first()).map_or(0, |process| process.process)
}

fn name(frame: &CompiledFrame) -> String {
    let function = frame.function.as_deref().unwrap_or("?");
    let direction = if frame.is_backward { ", backward" } else { "" };
    format!("compile {function} ({}{direction})", frame.id)
}

fn detail(frame: &CompiledFrame) -> String {
    let mut parts: Vec<String> = Vec::new();
    if let Some(file) = &frame.file {
        parts.push(match frame.line {
            Some(line) => format!("{file}:{line}"),
            None => file.clone(),
        });
    }
    let phases = frame.phases;
    for (phase, us) in [
        ("dynamo", phases.dynamo_us),
        ("aot", phases.aot_us),
        ("inductor", phases.inductor_us),
        ("kernels", phases.kernels_us),
    ] {
        parts.extend(us.map(|us| format!("{phase} {:.1} ms", us as f64 / 1000.0)));
    }
    parts.extend(frame.recompile_reason.as_ref().map(|guard| format!("again: {guard}")));
    if !frame.is_ended {
        parts.push("the log has no end of this compilation".to_owned());
    }
    parts.join(" · ")
}
