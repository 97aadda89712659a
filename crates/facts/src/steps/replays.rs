//! Finds steps of a job that replays a CUDA graph: each launch of the graph begins one.
//!
//! PyTorch's ranges show only the updates before a graph is captured, which are its warm-up, and
//! none of the replayed updates. If the steps of such a source launched less than half of the
//! device's time, the launches of the graph with most of that time are the steps.

use std::collections::BTreeMap;

use tprof_trace::TraceFile;
use tprof_trace::model::ProcessIndex;

use super::launched::{Launch, launches, launches_graph};
use super::step::{Estimate, Repeated, Step};

/// If the steps of a source launched at least this share of the time of all work, they are the
/// job's steps.
const MOST: f64 = 0.5;
/// Fewer launches of a graph than this show no steps.
const FEWEST: usize = 3;

/// Returns the steps by launches of graphs, if the `known` steps launched less than half of the
/// devices' work and these steps launched more.
pub(super) fn steps(file: &TraceFile, known: &[Step]) -> Option<(Vec<Step>, Estimate)> {
    // Reading the work of a file is slow, and nearly all files launch no graph. So this is checked
    // first.
    if !file.names().any(|(_, name)| launches_graph(name)) {
        return None;
    }
    let launches = launches(file);
    let all_ns: u64 = launches.values().flatten().map(|launch| launch.work_ns).sum();
    let share_of = |steps: &[Step]| launched_ns(&launches, steps) as f64 / all_ns.max(1) as f64;
    let share_of_known = share_of(known);
    if share_of_known >= MOST {
        return None;
    }
    let mut steps: Vec<Step> =
        launches.iter().flat_map(|(process, of)| of_process(*process, of)).collect();
    steps.sort_unstable();
    let share = share_of(&steps);
    let estimate = Estimate { what: Repeated::Graph, length: 1, share };
    (share > share_of_known).then_some((steps, estimate))
}

/// Returns the steps of a process. Each lasts from a launch of the graph with the most time to that
/// graph's next launch; the last step lasts as long as its call.
fn of_process(process: ProcessIndex, launches: &[Launch]) -> Vec<Step> {
    let mut graphs: BTreeMap<Option<u32>, u64> = BTreeMap::new();
    for launch in launches {
        if let Some(graph) = launch.of_graph {
            *graphs.entry(graph).or_default() += launch.work_ns;
        }
    }
    let Some((&most, _)) = graphs.iter().max_by_key(|(_, time_ns)| **time_ns) else {
        return Vec::new();
    };
    let of_graph: Vec<&Launch> =
        launches.iter().filter(|launch| launch.of_graph == Some(most)).collect();
    if of_graph.len() < FEWEST {
        return Vec::new();
    }
    let step = |(at, launch): (usize, &&Launch)| {
        let end_ns = of_graph.get(at + 1).map_or(launch.end_ns, |next| next.start_ns);
        Step { start_ns: launch.start_ns, end_ns, process, number: at as u64 }
    };
    of_graph.iter().enumerate().map(step).collect()
}

/// Returns the time of the work that was launched within steps, ns.
fn launched_ns(launches: &BTreeMap<ProcessIndex, Vec<Launch>>, steps: &[Step]) -> u64 {
    let mut sum = 0;
    for (process, launches) in launches {
        let mut ends_ns = 0;
        let mut steps: Vec<(u64, u64)> = steps
            .iter()
            .filter(|step| step.process == *process)
            .map(|step| (step.start_ns, step.end_ns))
            .collect();
        steps.sort_unstable();
        let mut steps = steps.into_iter().peekable();
        for launch in launches {
            while let Some((_, end_ns)) =
                steps.next_if(|(start_ns, _)| *start_ns <= launch.start_ns)
            {
                ends_ns = ends_ns.max(end_ns);
            }
            sum += if launch.start_ns < ends_ns { launch.work_ns } else { 0 };
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::super::{StepSource, Steps, of_file};
    use super::*;
    use tprof_trace::model::{Kernel, Span, SpanKind};
    use tprof_trace::{TraceHeader, TraceWriter};

    /// Finds the steps of four updates of a microsecond that each launch a kernel of `update_ns`.
    /// They are followed by six launches of a graph with two kernels of 500 ns each, and by one
    /// launch of another graph.
    fn of(update_ns: u64, wanted: Option<StepSource>) -> Steps {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let names = ["Optimizer.step#SGD.step", "cudaLaunchKernel", "cudaGraphLaunch", "gemm"];
        let [update, launch, replay, gemm] = names.map(|name| writer.name(name));
        let (mut spans, mut kernels) = (Vec::new(), Vec::new());
        let mut span = |start_ns, duration_ns, kind, name, correlation| {
            spans.push(Span { start_ns, duration_ns, kind, name, correlation, ..Span::default() });
        };
        let mut kernel = |number: u64, at: u64, duration_ns, graph| {
            let (start_ns, correlation) = (1_000_000 + 1000 * number + at, Some(number));
            kernels.push(Kernel {
                start_ns,
                duration_ns,
                name: gemm,
                correlation,
                graph,
                ..Kernel::default()
            });
        };
        for at in 0..4 {
            span(1000 * at, 1000, SpanKind::Annotation, update, None);
            span(1000 * at + 10, 20, SpanKind::Runtime, launch, Some(at));
            kernel(at, 0, update_ns, None);
        }
        for at in 4..11 {
            span(1000 * at, 20, SpanKind::Runtime, replay, Some(at));
            span(1000 * at + 1, 18, SpanKind::Driver, replay, Some(at));
            let graph = if at == 7 { Some(2) } else { Some(1) };
            kernel(at, 0, 500, graph);
            kernel(at, 500, 500, graph);
        }
        writer.write(&mut spans).unwrap();
        writer.write(&mut kernels).unwrap();
        writer.finish().unwrap();
        of_file(&TraceFile::open(&path).unwrap(), wanted)
    }

    #[test]
    fn if_updates_launched_little_device_work_replays_are_the_steps() {
        let steps = of(1000, None);
        assert_eq!(steps.source, Some(StepSource::Inferred));
        assert_eq!(steps.others, [(StepSource::Optimizer, 3)]);
        let Some(Estimate { what, length, share }) = steps.estimate else { panic!("no estimate") };
        assert_eq!((what, length), (Repeated::Graph, 1));
        // The share is of the time of all work, which is the work of updates and of replays. All
        // replays lie in steps, including that of the other graph.
        assert!((share - 7.0 / 11.0).abs() < 1e-9, "{share}");
        let times: Vec<(u64, u64, u64)> =
            steps.all.iter().map(|step| (step.number, step.start_ns, step.end_ns)).collect();
        let expected =
            [(0, 4000, 5000), (1, 5000, 6000), (2, 6000, 8000), (3, 8000, 9000), (4, 9000, 10_000)];
        assert_eq!(times[..5], expected);
        // The last step ends when its call ends.
        assert_eq!(times[5..], [(5, 10_000, 10_020)]);
    }

    #[test]
    fn if_updates_launched_most_device_work_they_stay_the_steps() {
        let steps = of(4000, None);
        assert_eq!((steps.source, steps.all.len()), (Some(StepSource::Optimizer), 3));
        let asked = of(1000, Some(StepSource::Optimizer));
        assert_eq!((asked.source, asked.all.len()), (Some(StepSource::Optimizer), 3));
        assert_eq!(asked.others, []);
    }
}
