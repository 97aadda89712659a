//! Finds the launches of device work: the time of each call, and the work that it started.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::calls::function;
use tprof_trace::model::{
    CopyKind, KernelOutline, MemoryCopy, NameId, ProcessIndex, SpanKind, SpanOutline, ThreadIndex,
};

/// Functions that launch a whole graph.
const GRAPH_LAUNCHES: [&str; 3] = ["cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch"];

/// The properties by which a piece of work is recognised when it repeats in each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum WorkPattern {
    /// A kernel with this name.
    Kernel(NameId),
    /// A copy or memset of this many bytes.
    Copy(CopyKind, Option<u64>),
}

/// A call that started work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    pub start_ns: u64,
    pub end_ns: u64,
    pub thread: ThreadIndex,
    /// The work that the call started; for a graph, the work that ran first.
    pub what: WorkPattern,
    /// Sum of the durations of the work that the call started, ns.
    pub work_ns: u64,
    /// `Some` if the call launches a graph, with the graph's number if it is known.
    pub of_graph: Option<Option<u32>>,
}

/// The work with one correlation number.
struct Correlated {
    first: (u64, WorkPattern),
    work_ns: u64,
    graph: Option<u32>,
}

/// Whether a call with this name launches a whole graph.
pub(super) fn launches_graph(name: &str) -> bool {
    GRAPH_LAUNCHES.contains(&function(name))
}

/// Returns the launches of each process in order of time. Work without a recorded call has no
/// launch.
pub(super) fn launches(file: &TraceFile) -> BTreeMap<ProcessIndex, Vec<Launch>> {
    let mut work: FxHashMap<(ProcessIndex, u64), Correlated> = FxHashMap::default();
    let mut add = |process, correlation: Option<u64>, (start_ns, what), work_ns, graph| {
        let Some(correlation) = correlation else { return };
        let first = (start_ns, what);
        let none = Correlated { first, work_ns: 0, graph };
        let of = work.entry((process, correlation)).or_insert(none);
        of.first = of.first.min(first);
        of.work_ns += work_ns;
    };
    for row in file.blocks::<KernelOutline>().flatten() {
        let first = (row.start_ns, WorkPattern::Kernel(row.name));
        add(row.process, row.correlation, first, row.duration_ns, row.graph);
    }
    for row in file.blocks::<MemoryCopy>().flatten() {
        let first = (row.start_ns, WorkPattern::Copy(row.kind, row.bytes));
        add(row.process, row.correlation, first, row.duration_ns, row.graph);
    }
    if work.is_empty() {
        return BTreeMap::new();
    }
    // A runtime call and the driver call within it have the same correlation. The runtime call,
    // which starts earlier, is taken.
    let mut calls: FxHashMap<(ProcessIndex, u64), Launch> = FxHashMap::default();
    for span in file.blocks::<SpanOutline>().flatten() {
        let is_call = matches!(span.kind, SpanKind::Runtime | SpanKind::Driver);
        let Some(correlation) = span.correlation.filter(|_| is_call) else { continue };
        let key = (span.process, correlation);
        let Some(of) = work.get(&key) else { continue };
        let launch = Launch {
            start_ns: span.start_ns,
            end_ns: span.start_ns.saturating_add(span.duration_ns),
            thread: span.thread,
            what: of.first.1,
            work_ns: of.work_ns,
            of_graph: launches_graph(file.name(span.name)).then_some(of.graph),
        };
        let known = calls.entry(key).or_insert(launch);
        if launch.start_ns < known.start_ns {
            *known = launch;
        }
    }
    let mut found: BTreeMap<ProcessIndex, Vec<Launch>> = BTreeMap::new();
    for ((process, _), launch) in calls {
        found.entry(process).or_default().push(launch);
    }
    let order = |launch: &Launch| (launch.start_ns, launch.thread, launch.what);
    found.values_mut().for_each(|launches| launches.sort_unstable_by_key(order));
    found
}
