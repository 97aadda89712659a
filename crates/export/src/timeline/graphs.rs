//! Adds a bar around the nodes of each run of a CUDA graph, if its nodes were recorded.

use std::collections::BTreeMap;

use super::events::{Event, EventKind, Lanes};

/// Returns the name that the recorder uses for a graph's run.
pub(super) fn graph_name(graph: u32) -> String {
    format!("CUDA graph {graph}")
}

/// A graph's run on one stream: the correlation of the call that launched it, and the graph.
type GraphRun = (Option<u64>, u32);

/// Collects the interval of each run, from its first node's start to its last node's end.
#[derive(Default)]
pub(super) struct GraphRuns {
    found: BTreeMap<GraphRun, (u64, u64)>,
}

impl GraphRuns {
    /// Adds a node of a graph. A node without a launching call is ignored, because its run cannot
    /// be identified.
    pub fn node(&mut self, event: &Event, graph: Option<u32>, node: Option<u64>) {
        if let (Some(graph), Some(_), Some(_)) = (graph, node, event.correlation) {
            let end_ns = event.start_ns.saturating_add(event.duration_ns);
            let run = self.found.entry((event.correlation, graph));
            let run = run.or_insert((event.start_ns, end_ns));
            *run = (run.0.min(event.start_ns), run.1.max(end_ns));
        }
    }

    /// Returns a bar for each launch of a graph, from the first node's start to the last node's
    /// end.
    pub fn events(self, lanes: &mut Lanes) -> Vec<Event> {
        let bar = |((correlation, graph), (start_ns, end_ns)): (GraphRun, (u64, u64))| Event {
            start_ns,
            duration_ns: end_ns - start_ns,
            name: lanes.names.of(&graph_name(graph)),
            kind: EventKind::Graph,
            detail: 0,
            correlation,
            kin: 0,
        };
        self.found.into_iter().map(bar).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_one_launch_lie_within_one_bar() {
        let (mut lanes, mut runs) = (Lanes::new(), GraphRuns::default());
        let node = |start_ns, correlation| Event {
            start_ns,
            duration_ns: 5,
            name: 0,
            kind: EventKind::Kernel,
            detail: 0,
            correlation,
            kin: 0,
        };
        for (start_ns, call) in [(10, 1), (20, 1), (30, 2)] {
            runs.node(&node(start_ns, Some(call)), Some(7), Some(3));
        }
        // These three have no bar: a graph that was recorded as a whole, a kernel outside of
        // graphs, and a node whose launch is unknown.
        runs.node(&node(40, Some(3)), Some(7), None);
        runs.node(&node(50, Some(4)), None, None);
        runs.node(&node(60, None), Some(7), Some(3));
        let bars = runs.events(&mut lanes);
        let times: Vec<_> = bars.iter().map(|bar| (bar.start_ns, bar.duration_ns)).collect();
        assert_eq!(times, [(10, 15), (30, 5)]);
        assert!(bars.iter().all(|bar| bar.kind == EventKind::Graph && bar.correlation.is_some()));
    }
}
