//! `critical_path_analysis` as Holistic Trace Analysis 0.5.0 computes it.
//!
//! The path is the one with the greatest weight through a graph of the starts and ends of
//! operators, calls and kernels. The time between two outermost operators and the time of a
//! blocking call have weight zero. A kernel that was launched while others were queued counts as
//! waiting for the kernel before it, however long ago that kernel ended.

mod events;
mod graph;
mod queue;
mod stacks;
mod streams;
mod waits;

use tprof_rank::base::intervals::Interval;
use tprof_rank::{Class, RankTrace, hta_class};
use tprof_trace::model::{NameId, SpanKind};

use crate::gpu::critical_path::path::{Bound, Path, Segment};

use events::Events;
use graph::{Edge, EdgeKind, Graph};

/// HTA's critical path through a window; `None` if its graph has a cycle.
pub struct HtaPath {
    /// The path; its segments carry durations, not times.
    pub path: Path,
    /// The number of nodes and of edges of the whole graph, and of nodes on the path.
    pub counts: [u64; 3],
}

/// Computes the path through a rank that was read with HTA's reading.
pub fn critical_path(rank: &RankTrace, window: Interval) -> Option<HtaPath> {
    let events = Events::of(rank, window);
    let mut graph = Graph::default();
    let mut blocking = rustc_hash::FxHashMap::default();
    for row in &events.host {
        blocking.entry(row.name).or_insert_with(|| stacks::is_blocking(rank.name(row.name)));
    }
    stacks::add_threads(&mut graph, &events.host, |row| {
        row.call.is_some() && blocking.get(&row.name) == Some(&true)
    });
    streams::add_streams(&mut graph, rank, &events);
    let edges = graph.longest_path()?;
    let segments = edges.iter().map(|edge| segment(rank, &events, &graph, edge)).collect();
    let counts = [graph.nodes() as u64, graph.edges().len() as u64, edges.len() as u64 + 1];
    Some(HtaPath { path: Path { segments }, counts })
}

fn segment(rank: &RankTrace, events: &Events, graph: &Graph, edge: &Edge) -> Segment {
    let from = graph.node(edge.from);
    let to = graph.node(edge.to);
    let host = events.host.len() as u32;
    let of_device = |event: u32| events.device.get(event.checked_sub(host)? as usize);
    let name_of = |event: u32| match of_device(event) {
        Some(row) => row.name,
        None => events.host[event as usize].name,
    };
    let (bound, name) = match edge.kind {
        EdgeKind::Dependency | EdgeKind::Sync => (Bound::Dependency, NameId(0)),
        EdgeKind::LaunchDelay => (Bound::Launch, name_of(to.event)),
        EdgeKind::KernelDelay => (Bound::KernelGap, name_of(to.event)),
        EdgeKind::Operator => match of_device(from.event) {
            Some(row) => (device_bound(rank.name(row.name)), row.name),
            None => (Bound::Host, name_of(if to.end && from.end { to.event } else { from.event })),
        },
    };
    let start = match of_device(from.event) {
        Some(row) if from.end => row.end_ns,
        Some(row) => row.start_ns,
        None if from.end => events.host[from.event as usize].end_ns,
        None => events.host[from.event as usize].start_ns,
    };
    let length = edge.weight.max(0) as u64;
    Segment { interval: Interval::new(start, start + length), bound, name }
}

/// Returns the bound of device work with this name. HTA counts a copy as compute.
fn device_bound(name: &str) -> Bound {
    match hta_class(name) {
        Class::Communication => Bound::Communication,
        _ => Bound::Compute,
    }
}

/// The kinds of spans that `--within` can name as the window.
pub const RANGES: [SpanKind; 4] =
    [SpanKind::Annotation, SpanKind::Operator, SpanKind::Nvtx, SpanKind::Other];
