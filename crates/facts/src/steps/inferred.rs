//! Estimates steps that nothing names. A step is one period of a process's launches of kernels,
//! copies and memsets or, if these have no period, of its operations between ranks.
//!
//! An iteration launches the same work in the same order as the previous one: kernels with the same
//! names, copies and memsets with the same kind and size. So the method searches for one sequence
//! that repeats exactly ([`super::period`]). If sizes of copies differ from step to step, only
//! kernels are compared. The sequence has the length of a step, but does not show where the step
//! begins, since each rotation of the sequence repeats too. The step is assumed to begin where the
//! host usually paused longest, since there it fetched a batch, wrote a log or waited for the
//! device.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, SpanOutline, ThreadIndex};

use super::launched::{Launch, WorkPattern, launches};
use super::period::{self, Period};
use super::step::{Estimate, Repeated, Step};
use crate::communication::on_host::{HostCollectives, HostOperation};

/// One launch or operation in a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Element {
    start_ns: u64,
    thread: ThreadIndex,
    /// The symbol that stands for the element. Elements of the same kind have the same symbol.
    symbol: u32,
}

type ByProcess = BTreeMap<ProcessIndex, Vec<Element>>;

/// Returns the steps of all processes with a clear period, and the estimate for the process with
/// the most steps.
pub(super) fn steps(file: &TraceFile) -> (Vec<Step>, Option<Estimate>) {
    let launches = launches(file);
    let mut operations = operations(file);
    operations.retain(|process, _| !launches.contains_key(process));
    let of_launches = launches.iter().map(|(process, launches)| {
        let lists = [elements(launches, true), elements(launches, false)];
        (Repeated::Launches, *process, periodic(lists))
    });
    let of_operations = operations
        .into_iter()
        .map(|(process, events)| (Repeated::Operations, process, periodic([events])));
    let mut steps = Vec::new();
    let mut estimate: Option<(usize, Estimate)> = None;
    for (what, process, found) in of_launches.chain(of_operations) {
        let Some((events, found)) = found else { continue };
        let of_process = between(process, &events, &found);
        let share = (found.starts.len() * found.length) as f64 / events.len() as f64;
        let of = Estimate { what, length: found.length, share };
        if estimate.is_none_or(|(most, _)| of_process.len() > most) {
            estimate = Some((of_process.len(), of));
        }
        steps.extend(of_process);
    }
    (steps, estimate.map(|(_, of)| of))
}

/// Returns the first of several lists of a process's events that has a period, with the period. If
/// no list has one, tries the events of the busiest thread of each list.
fn periodic<const LISTS: usize>(lists: [Vec<Element>; LISTS]) -> Option<(Vec<Element>, Period)> {
    let found = |events: Vec<Element>| {
        let symbols: Vec<u32> = events.iter().map(|event| event.symbol).collect();
        let times: Vec<u64> = events.iter().map(|event| event.start_ns).collect();
        let period = period::of(&symbols, &times)?;
        Some((events, period))
    };
    let of_threads = lists.clone().into_iter().filter_map(of_busiest_thread);
    lists.into_iter().chain(of_threads).find_map(found)
}

/// Returns the events of the thread that has most of them; `None` if there is only one thread.
fn of_busiest_thread(events: Vec<Element>) -> Option<Vec<Element>> {
    let mut counts: BTreeMap<ThreadIndex, usize> = BTreeMap::new();
    events.iter().for_each(|event| *counts.entry(event.thread).or_default() += 1);
    let (&busiest, _) = counts.iter().max_by_key(|(_, count)| **count)?;
    let is_of_it = |event: &Element| event.thread == busiest;
    (counts.len() > 1).then(|| events.into_iter().filter(is_of_it).collect())
}

/// Returns a step for each repetition. It lasts from the repetition's first event to the event
/// after its last one. The last repetition of all has no step, since its end is not recorded.
fn between(process: ProcessIndex, events: &[Element], found: &Period) -> Vec<Step> {
    let step = |(&at, number): (&usize, u64)| {
        let end_ns = events.get(at + found.length)?.start_ns;
        Some(Step { start_ns: events[at].start_ns, end_ns, process, number })
    };
    found.starts.iter().zip(0..).filter_map(step).collect()
}

/// Returns the launches in order of time: those of all work, or only those of kernels. The launch
/// of a graph counts as that of the work that ran first.
fn elements(launches: &[Launch], copies: bool) -> Vec<Element> {
    let mut symbols: FxHashMap<WorkPattern, u32> = FxHashMap::default();
    let counts = |launch: &&Launch| copies || matches!(launch.what, WorkPattern::Kernel(_));
    let element = |launch: &Launch| {
        let next = symbols.len() as u32;
        let symbol = *symbols.entry(launch.what).or_insert(next);
        Element { start_ns: launch.start_ns, thread: launch.thread, symbol }
    };
    launches.iter().filter(counts).map(element).collect()
}

/// Returns the operations between ranks on the host, with their sizes.
fn operations(file: &TraceFile) -> ByProcess {
    let mut found = ByProcess::new();
    let Some(mut collectives) = HostCollectives::of(file) else { return found };
    let mut symbols: FxHashMap<HostOperation, u32> = FxHashMap::default();
    for span in file.blocks::<SpanOutline>().flatten() {
        let Some(of) = collectives.find(&span) else { continue };
        let next = symbols.len() as u32;
        let symbol = *symbols.entry(of.what).or_insert(next);
        let event = Element { start_ns: span.start_ns, thread: span.thread, symbol };
        found.entry(span.process).or_default().push(event);
    }
    found.values_mut().for_each(|events| events.sort_unstable());
    found
}

#[cfg(test)]
mod tests {
    use super::super::{StepSource, Steps, of_file};
    use super::*;
    use tprof_trace::model::{CopyKind, Kernel, MemoryCopy, Span, SpanKind};
    use tprof_trace::{TraceHeader, TraceWriter};

    /// Finds steps in launches of kernels with these names. Each launch takes 1 us and contains a
    /// driver call. A number in `names` is a copy of this many bytes to the host, and `_` is a
    /// pause.
    fn of_launches(names: &[&str], more: impl FnOnce(&mut TraceWriter) -> Vec<Span>) -> Steps {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let mut spans: Vec<Span> = more(&mut writer);
        let (mut kernels, mut copies) = (Vec::new(), Vec::new());
        let mut start_ns = 0;
        for (name, number) in names.iter().zip(1..) {
            start_ns += if *name == "_" { 50_000 } else { 2000 };
            if *name == "_" {
                continue;
            }
            let correlation = Some(number);
            for (kind, within_ns) in [(SpanKind::Driver, 100), (SpanKind::Runtime, 0)] {
                let (start_ns, duration_ns) = (start_ns + within_ns, 1000 - 2 * within_ns);
                spans.push(Span { start_ns, duration_ns, kind, correlation, ..Span::default() });
            }
            if let Ok(bytes) = name.parse() {
                copies.push(MemoryCopy {
                    start_ns: start_ns + 900_000,
                    duration_ns: 5,
                    kind: CopyKind::DeviceToHost,
                    bytes: Some(bytes),
                    correlation,
                    ..MemoryCopy::default()
                });
                continue;
            }
            // A name with `+` stands for the launch of a graph that has several kernels.
            let of_launch = name.split('+').zip(0..);
            kernels.extend(of_launch.map(|(name, at)| Kernel {
                start_ns: start_ns + 900_000 + at,
                duration_ns: 5,
                name: writer.name(name),
                correlation,
                ..Kernel::default()
            }));
        }
        writer.write(&mut spans).unwrap();
        writer.write(&mut kernels).unwrap();
        writer.write(&mut copies).unwrap();
        writer.finish().unwrap();
        of_file(&TraceFile::open(&path).unwrap(), None)
    }

    fn repeated(of: &[&'static str], times: usize) -> Vec<&'static str> {
        of.iter().copied().cycle().take(of.len() * times).collect()
    }

    #[test]
    fn a_repeated_sequence_of_kernels_is_a_step_from_pause_to_pause() {
        let names = repeated(&["_", "copy", "gemm", "gemm+relu", "adam"], 12);
        let steps = of_launches(&names, |_| Vec::new());
        assert_eq!(steps.source, Some(StepSource::Inferred));
        assert!(steps.are_inferred());
        // The last of the twelve repetitions has no end, so it is not a step.
        assert_eq!(steps.all.len(), 11);
        for (step, number) in steps.all.iter().zip(0..) {
            assert_eq!((step.number, step.start_ns), (number, 52_000 + 58_000 * number));
            assert_eq!(step.end_ns - step.start_ns, 58_000);
        }
        let Some(Estimate { what, length, share }) = steps.estimate else { panic!("no estimate") };
        assert_eq!((what, length), (Repeated::Launches, 4));
        assert!((share - 1.0).abs() < 1e-9, "{share}");
    }

    #[test]
    fn launches_without_a_repeated_sequence_are_not_steps() {
        let names = repeated(&["gemm"], 200);
        assert_eq!(of_launches(&names, |_| Vec::new()), Steps::default());
        let mut names = repeated(&["_", "copy", "gemm", "relu", "adam"], 12);
        for at in (0..names.len()).step_by(7) {
            names.insert(at, "other");
        }
        assert_eq!(of_launches(&names, |_| Vec::new()), Steps::default());
    }

    #[test]
    fn copies_are_a_part_of_steps_unless_their_sizes_differ() {
        let length = |names: &[&str]| {
            let steps = of_launches(names, |_| Vec::new());
            steps.estimate.map(|of| (of.length, steps.all.len()))
        };
        let alike = repeated(&["_", "mm", "mm", "mm", "64"], 12);
        assert_eq!(length(&alike), Some((4, 11)));
        let kernels = ["_", "mm", "relu", "tanh"];
        let sizes: Vec<String> = (0..12).map(|size| size.to_string()).collect();
        let other: Vec<&str> =
            sizes.iter().flat_map(|size| kernels.into_iter().chain([size.as_str()])).collect();
        assert_eq!(length(&other), Some((3, 11)));
    }

    #[test]
    fn named_steps_come_before_inferred_ones() {
        let names = repeated(&["_", "copy", "gemm", "gemm", "adam"], 12);
        let steps = of_launches(&names, |writer| {
            let name = writer.name("ProfilerStep#3");
            let kind = SpanKind::Annotation;
            vec![Span { start_ns: 1, duration_ns: 10_000, kind, name, ..Span::default() }]
        });
        assert_eq!(steps.source, Some(StepSource::Profiler));
        assert!(!steps.are_inferred() && steps.all.len() == 1 && steps.others.is_empty());
    }
}
