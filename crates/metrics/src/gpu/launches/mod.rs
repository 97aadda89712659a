//! Measures the durations of the calls that start work, and the delays from these calls to the
//! work.

mod tables;

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::base::names::Names;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::base::stats::quantiles;
use tprof_rank::{HostSpan, Needs, RankTrace, WINDOW_NEEDS, Work};
use tprof_trace::calls::function;

use crate::gpu::outside::{LeftOutRows, add_left_out};
use tables::{by_call, by_graph, each};

/// The report `launches`.
pub const KIND: DocumentKind = DocumentKind {
    name: "launches",
    about: "calls that start device work: duration, delay, outliers",
    analysis: || boxed(LaunchReport::default()),
};

/// A call that takes longer than this is an outlier; Holistic Trace Analysis's `runtime_cutoff`.
pub const LONG_CALL_NS: u64 = 50_000;
/// A delay longer than this is an outlier; Holistic Trace Analysis's `launch_delay_cutoff`.
pub const LONG_DELAY_NS: u64 = 100_000;

/// Calls that Holistic Trace Analysis counts as launches in this report.
const HTA_LAUNCHES: [&str; 4] =
    ["cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync"];

/// A call and one piece of work that it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The number that the call and its work share.
    pub correlation: u64,
    /// Index of the call.
    pub call: u32,
    /// The beginning of the call, ns.
    pub start_ns: u64,
    /// Duration of the call, ns.
    pub call_ns: u64,
    /// Duration of the work, ns.
    pub work_ns: u64,
    /// Time from the call's end to the work's start, ns; 0 if the work started before the call
    /// ended.
    pub delay_ns: u64,
}

impl Launch {
    fn of(call: u32, row: &HostSpan, work: &Work) -> Launch {
        Launch {
            correlation: work.correlation.get().unwrap_or(0),
            call,
            start_ns: row.start_ns,
            call_ns: row.duration_ns,
            work_ns: work.duration_ns,
            delay_ns: work.start_ns.saturating_sub(row.end_ns()),
        }
    }
}

/// Returns the launches of a rank in order of calls: one for each piece of work.
pub fn launches<'r>(rank: &'r RankTrace<'_>) -> impl Iterator<Item = Launch> + 'r {
    let is_launch =
        move |call: &HostSpan| !rank.hta || HTA_LAUNCHES.contains(&function(rank.name(call.name)));
    rank.calls.iter().enumerate().filter(move |(_, call)| is_launch(call)).flat_map(
        move |(at, call)| {
            let of = move |work: &u32| Launch::of(at as u32, call, &rank.work[*work as usize]);
            rank.launches.work_of(at).iter().map(of)
        },
    )
}

/// Launches by one function.
#[derive(Clone, Debug)]
pub struct CallLaunches {
    /// Name of the function.
    pub name: Arc<str>,
    /// Number of calls that started work.
    pub calls: u64,
    /// Number of kernels, copies and memsets that the calls started.
    pub work: u64,
    /// Duration of the calls, ns.
    pub call_ns: Quantiles,
    /// Time from a call's end to the start of its first work, ns.
    pub delay_ns: Quantiles,
    /// Number of calls that took longer than the work that they started. Such work is too small.
    pub short: u64,
    /// Number of calls longer than [`LONG_CALL_NS`].
    pub long_calls: u64,
    /// Number of delays longer than [`LONG_DELAY_NS`].
    pub long_delays: u64,
}

/// Sum, median, 99th percentile and maximum of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quantiles {
    /// Sum of the values, ns.
    pub total_ns: u64,
    /// Median of the values, ns.
    pub median_ns: f64,
    /// 99th percentile of the values, ns.
    pub p99_ns: f64,
    /// The highest value, ns.
    pub max_ns: u64,
}

impl Quantiles {
    fn of(mut values: Vec<u64>) -> Quantiles {
        let [median_ns, p99_ns] = quantiles(&mut values, [0.5, 0.99]);
        let max_ns = values.last().copied().unwrap_or(0);
        Quantiles { total_ns: values.iter().sum(), median_ns, p99_ns, max_ns }
    }
}

/// The launches of one graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphLaunches {
    /// Number of the graph; `None` if the trace doesn't number its graphs.
    pub graph: Option<u32>,
    /// Number of pieces of work that one launch starts.
    pub nodes: usize,
    /// Number of launches.
    pub launches: u64,
    /// Sum of the calls' durations, ns.
    pub call_ns: u64,
    /// Sum of the work's durations, ns.
    pub work_ns: u64,
    /// For each launch, the time from its first work's start to its last work's end; summed over
    /// the launches, ns.
    pub span_ns: u64,
}

/// The launches of one rank.
#[derive(Clone, Debug, Default)]
pub struct RankLaunches {
    /// Launches by function, most time first.
    pub calls: Vec<CallLaunches>,
    /// Launches by graph, most time first.
    pub graphs: Vec<GraphLaunches>,
    /// Number of pieces of work without a recorded launch.
    pub orphans: u64,
    /// Each launch with its function; empty unless the user asked for single launches.
    pub each: Vec<(Arc<str>, Launch)>,
    /// Launches outside of the steps, which the other fields leave out.
    pub left_out: LeftOutRows,
}

/// Sums up the launches of a rank. The result contains each single launch only if `each`.
pub fn of_rank(rank: &RankTrace<'_>, names: &Names, each: bool) -> RankLaunches {
    let work_judged = rank.is_judged();
    let is_orphan = |at: &usize| work_judged[*at] && rank.launches.call_of(*at).is_none();
    let mut found = RankLaunches {
        orphans: (0..rank.work.len()).filter(is_orphan).count() as u64,
        left_out: LeftOutRows::of(rank),
        ..RankLaunches::default()
    };
    let is_judged = rank.is_call_judged();
    let mut by_name: FxHashMap<_, Vec<Launch>> = FxHashMap::default();
    let mut last = None;
    for launch in launches(rank) {
        let call = &rank.calls[launch.call as usize];
        let is_judged = is_judged[launch.call as usize];
        if last.replace(launch.call) != Some(launch.call) {
            found.left_out.count(is_judged, launch.call_ns, || rank.name(call.name).to_owned());
        }
        if is_judged {
            by_name.entry(call.name).or_default().push(launch);
        }
    }
    for (name, launches) in by_name {
        let name = names.get(rank.name(name));
        if each {
            found.each.extend(launches.iter().map(|launch| (Arc::clone(&name), *launch)));
        }
        found.calls.push(of_calls(name, &launches));
    }
    found.calls.sort_by(|a, b| {
        b.call_ns.total_ns.cmp(&a.call_ns.total_ns).then_with(|| a.name.cmp(&b.name))
    });
    found.each.sort_by_key(|(_, launch)| launch.start_ns);
    found.graphs = graphs(rank, &is_judged);
    found
}

/// Sums up the launches of one function. `launches` are in order of calls, and within a call in
/// order of the work's start.
fn of_calls(name: Arc<str>, launches: &[Launch]) -> CallLaunches {
    let calls: Vec<&[Launch]> = launches.chunk_by(|a, b| a.call == b.call).collect();
    let first =
        |of: fn(&Launch) -> u64| -> Vec<u64> { calls.iter().map(|work| of(&work[0])).collect() };
    let (call_ns, delay_ns) = (first(|launch| launch.call_ns), first(|launch| launch.delay_ns));
    let count = |is: &dyn Fn(&&&[Launch]) -> bool| calls.iter().filter(is).count() as u64;
    CallLaunches {
        name,
        calls: calls.len() as u64,
        work: launches.len() as u64,
        short: count(&|work| work.iter().map(|row| row.work_ns).sum::<u64>() < work[0].call_ns),
        long_calls: count(&|work| work[0].call_ns > LONG_CALL_NS),
        long_delays: count(&|work| work[0].delay_ns > LONG_DELAY_NS),
        call_ns: Quantiles::of(call_ns),
        delay_ns: Quantiles::of(delay_ns),
    }
}

fn graphs(rank: &RankTrace<'_>, is_judged: &[bool]) -> Vec<GraphLaunches> {
    let mut graphs: FxHashMap<(Option<u32>, usize), GraphLaunches> = FxHashMap::default();
    for (at, call) in rank.calls.iter().enumerate().filter(|(at, _)| is_judged[*at]) {
        let work = rank.launches.work_of(at);
        let Some(first) = work.first().map(|at| &rank.work[*at as usize]) else { continue };
        if first.graph.is_none() && !rank.name(call.name).contains("GraphLaunch") {
            continue;
        }
        let rows = || work.iter().map(|at| &rank.work[*at as usize]);
        let end_ns = rows().map(Work::end_ns).max().unwrap_or(first.start_ns);
        let nodes = work.len();
        let graph = graphs.entry((first.graph, nodes)).or_insert(GraphLaunches {
            graph: first.graph,
            nodes,
            launches: 0,
            call_ns: 0,
            work_ns: 0,
            span_ns: 0,
        });
        graph.launches += 1;
        graph.call_ns += call.duration_ns;
        graph.work_ns += rows().map(|row| row.duration_ns).sum::<u64>();
        graph.span_ns += end_ns - first.start_ns;
    }
    let mut graphs: Vec<GraphLaunches> = graphs.into_values().collect();
    graphs.sort_rows_by_key(|row| (Reverse(row.span_ns), row.graph, row.nodes));
    graphs
}

/// Launches and their delays: `tprof report launches`.
#[derive(Default)]
struct LaunchReport {
    names: Names,
}

impl Analysis for LaunchReport {
    const KIND: &'static str = KIND.name;
    type Part = RankLaunches;

    fn needs(&self, _: &Options) -> Needs {
        WINDOW_NEEDS
    }

    fn rank(&self, rank: &RankTrace<'_>, _: &RankContext, options: &Options) -> RankLaunches {
        of_rank(rank, &self.names, options.lists_single_rows())
    }

    fn join(&self, parts: Vec<(RankContext, RankLaunches)>, options: &Options) -> Body {
        let mut tables = vec![by_call(&parts)];
        if parts.iter().any(|(_, part)| !part.graphs.is_empty()) {
            tables.push(by_graph(&parts));
        }
        if options.lists_single_rows() {
            tables.push(each(&parts));
        }
        let orphans: u64 = parts.iter().map(|(_, part)| part.orphans).sum();
        let mut notes = Vec::new();
        if orphans > 0 {
            notes.push(format!(
                "the launches of {} kernels and copies were not recorded",
                tprof_facts::units::count(orphans)
            ));
        }
        let mut body = Body { tables, notes };
        let left_out = parts.iter().map(|(at, part)| (at, &part.left_out));
        add_left_out(&mut body, "calls that start work", &["launches", "each"], left_out);
        body
    }
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::Kernel;

    use super::*;

    #[test]
    fn with_hta_a_launch_counts_in_each_form_of_its_name() {
        let mut made = Fixture::new();
        let forms = ["cudaLaunchKernel", "__cudaLaunchKernel", "cudaLaunchKernelExC_ptsz"];
        for (correlation, name) in (1..).zip(forms) {
            made.call(0, 10 * correlation, 5, name, correlation);
            let start_ns = 10_000 + 10 * correlation;
            let correlation = Some(correlation);
            made.kernel(Kernel { start_ns, duration_ns: 1, correlation, ..Kernel::default() }, "k");
        }
        let file = made.finish();
        let mut rank = RankTrace::load(&file, Needs::WORK | Needs::CALLS);
        rank.hta = true;
        assert_eq!(launches(&rank).count(), forms.len());
        let waiting: usize =
            crate::gpu::queue::series(&rank).iter().map(|(_, points)| points.len()).sum();
        assert_eq!(waiting, 2 * forms.len());
    }

    #[test]
    fn a_launch_is_measured_from_call_to_kernel() {
        let mut made = Fixture::new();
        let starts = |start_ns, duration_ns, correlation| Kernel {
            start_ns,
            duration_ns,
            correlation: Some(correlation),
            ..Kernel::default()
        };
        made.call(0, 1_000, 4_000, "cudaLaunchKernel", 1);
        made.kernel(starts(7_000, 3_000, 1), "small");
        made.call(0, 10_000, 60_000, "cudaLaunchKernel", 2);
        made.kernel(starts(400_000, 90_000, 2), "late");
        made.call(0, 80_000, 1_000, "cudaMemcpyAsync", 3);
        made.call(0, 500_000, 9_000, "cudaGraphLaunch", 4);
        made.kernel(starts(508_000, 5_000, 4), "node");
        made.kernel(starts(520_000, 6_000, 4), "node");
        made.kernel(starts(530_000, 6_000, 5), "orphan");
        let file = made.finish();
        let rank = RankTrace::load(&file, Needs::WORK | Needs::CALLS);
        let found = of_rank(&rank, &Names::default(), true);
        assert_eq!(found.orphans, 1);
        assert_eq!(found.calls.len(), 2);
        let kernels = &found.calls[0];
        assert_eq!((&*kernels.name, kernels.calls, kernels.short), ("cudaLaunchKernel", 2, 1));
        assert_eq!((kernels.long_calls, kernels.long_delays), (1, 1));
        assert_eq!((kernels.call_ns.total_ns, kernels.call_ns.max_ns), (64_000, 60_000));
        assert_eq!((kernels.delay_ns.median_ns, kernels.delay_ns.max_ns), (166_000.0, 330_000));
        let graph = GraphLaunches {
            graph: None,
            nodes: 2,
            launches: 1,
            call_ns: 9_000,
            work_ns: 11_000,
            span_ns: 18_000,
        };
        assert_eq!(found.graphs, [graph]);
        // The first node began before the call had returned, so its delay is 0.
        let each: Vec<u64> = found.each.iter().map(|(_, launch)| launch.delay_ns).collect();
        assert_eq!(each, [2_000, 330_000, 0, 11_000]);
    }
}
