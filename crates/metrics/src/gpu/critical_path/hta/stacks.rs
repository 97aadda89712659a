//! Adds the edges of host threads to HTA's graph.
//!
//! The events of a thread are pushed on a stack when they start. When any event ends, the top of
//! the stack is popped, as in HTA. This makes a tree, and the edges follow it. If events overlap
//! without nesting, the tree differs from the true nesting.

use std::cmp::Reverse;

use tprof_trace::calls::function;

use super::events::HostEvent;
use super::graph::{EdgeKind, Graph, Node};

/// Calls that may block. HTA counts their own time as zero.
const BLOCKING: [&str; 6] = [
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cudaEventQuery",
    "cudaEventSynchronize",
    "cudaMemcpy",
    "cudaMemcpyAsync",
];

/// Whether HTA counts a call's own time as zero.
pub fn is_blocking(name: &str) -> bool {
    BLOCKING.contains(&function(name))
}

/// Adds the edges of all threads. A node of the graph contains the index of its event in `host`.
pub fn add_threads(graph: &mut Graph, host: &[HostEvent], blocking: impl Fn(&HostEvent) -> bool) {
    let mut order: Vec<u32> = (0..host.len() as u32).collect();
    order.sort_by_key(|&at| (host[at as usize].process, host[at as usize].thread));
    let thread = |at: &u32| (host[*at as usize].process, host[*at as usize].thread);
    for events in order.chunk_by(|a, b| thread(a) == thread(b)) {
        let children = tree(host, events);
        TreeWalk::default().visit(graph, host, &children, &blocking);
    }
}

/// The children of each event, as positions in `events`. The last entry contains the outermost
/// events.
struct EventTree<'e> {
    events: &'e [u32],
    children: Vec<Vec<u32>>,
}

fn tree<'e>(host: &[HostEvent], events: &'e [u32]) -> EventTree<'e> {
    // At the same time, sort ends before starts. Of several starts the longest event comes first,
    // and of several ends the shortest event.
    let mut edges: Vec<(u64, bool, Reverse<u64>, i64)> = Vec::with_capacity(events.len() * 2);
    for (&at, place) in events.iter().zip(0_i64..) {
        let row = &host[at as usize];
        let length = row.end_ns - row.start_ns;
        edges.push((row.start_ns, true, Reverse(length), place));
        edges.push((row.end_ns, false, Reverse(u64::MAX - length), -place));
    }
    edges.sort_unstable();
    let mut children = vec![Vec::new(); events.len() + 1];
    let mut open: Vec<usize> = Vec::new();
    for (_, is_start, _, place) in edges {
        if is_start {
            let caller = open.last().copied().unwrap_or(events.len());
            children[caller].push(place as u32);
            open.push(place as usize);
        } else {
            open.pop();
        }
    }
    EventTree { events, children }
}

/// The state of a walk through a tree.
#[derive(Default)]
struct TreeWalk {
    last: Option<Node>,
    last_outermost: Option<Node>,
    depth: usize,
}

impl TreeWalk {
    fn visit(
        &mut self,
        graph: &mut Graph,
        host: &[HostEvent],
        tree: &EventTree,
        blocking: &impl Fn(&HostEvent) -> bool,
    ) {
        let mut open: Vec<(usize, usize)> = vec![(tree.events.len(), 0)];
        while let Some((place, next)) = open.last_mut() {
            let place = *place;
            if let Some(&child) = tree.children[place].get(*next) {
                *next += 1;
                self.enter(graph, host, tree.events[child as usize]);
                open.push((child as usize, 0));
            } else {
                open.pop();
                if let Some(&event) = tree.events.get(place) {
                    self.leave(graph, host, event, blocking);
                }
            }
        }
    }

    fn enter(&mut self, graph: &mut Graph, host: &[HostEvent], event: u32) {
        if !host[event as usize].is_node {
            return;
        }
        let start = Node { event, end: false };
        if let Some(outermost) = self.last_outermost.filter(|_| self.depth == 0) {
            graph.add(outermost, start, 0, EdgeKind::Dependency);
        }
        self.depth += 1;
        if let Some(last) = self.last {
            graph.add(last, start, between(host, last, start), EdgeKind::Operator);
        }
        self.last = Some(start);
    }

    fn leave(
        &mut self,
        graph: &mut Graph,
        host: &[HostEvent],
        event: u32,
        blocking: &impl Fn(&HostEvent) -> bool,
    ) {
        let row = &host[event as usize];
        if !row.is_node {
            return;
        }
        let end = Node { event, end: true };
        self.depth -= 1;
        if let Some(last) = self.last {
            let weight = if blocking(row) { 0 } else { between(host, last, end) };
            graph.add(last, end, weight, EdgeKind::Operator);
        }
        if self.depth == 0 {
            self.last = None;
            self.last_outermost = Some(end);
        } else {
            self.last = Some(end);
        }
    }
}

fn between(host: &[HostEvent], from: Node, to: Node) -> i64 {
    let time = |node: Node| {
        let row = &host[node.event as usize];
        if node.end { row.end_ns as i64 } else { row.start_ns as i64 }
    };
    time(to) - time(from)
}
