//! Builds a directed graph of moments, and finds the longest path through it.
//!
//! If several paths have the greatest length, the order in which nodes and edges were added decides
//! between them. `dag_longest_path` of networkx, which HTA calls, does the same.

use rustc_hash::FxHashMap;

/// A moment: the start or the end of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Index of the event.
    pub event: u32,
    /// Whether the node is the event's end.
    pub end: bool,
}

/// The reason why one moment can't come before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    /// The time from an event's start to its end.
    Operator,
    /// An operator follows another one on its thread.
    Dependency,
    /// A kernel starts after its launch.
    LaunchDelay,
    /// A kernel waits for the kernel before it.
    KernelDelay,
    /// A call or a kernel waits for device work.
    Sync,
}

/// A weighted edge between two nodes.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// The node where the edge starts.
    pub from: u32,
    /// The node where the edge ends.
    pub to: u32,
    /// Length in microseconds, or in the caller's unit; negative if clocks disagree.
    pub weight: i64,
    /// The reason for the edge.
    pub kind: EdgeKind,
}

/// A directed graph. It has at most one edge from a given node to another, and a later edge
/// replaces an earlier one. Adds an edge, or replaces the edge that already connects these nodes.
#[derive(Debug, Default)]
pub struct Graph {
    numbers: FxHashMap<Node, u32>,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    out: Vec<Vec<u32>>,
    into: Vec<Vec<u32>>,
}

impl Graph {
    fn number(&mut self, node: Node) -> u32 {
        let next = self.nodes.len() as u32;
        let number = *self.numbers.entry(node).or_insert(next);
        if number == next {
            self.nodes.push(node);
            self.out.push(Vec::new());
            self.into.push(Vec::new());
        }
        number
    }

    /// Adds an edge, or replaces the one between these nodes.
    pub fn add(&mut self, from: Node, to: Node, weight: i64, kind: EdgeKind) {
        let (from, to) = (self.number(from), self.number(to));
        let edge = Edge { from, to, weight, kind };
        let known = self.into[to as usize].iter().find(|at| self.edges[**at as usize].from == from);
        match known.copied() {
            Some(at) => self.edges[at as usize] = edge,
            None => {
                let at = self.edges.len() as u32;
                self.edges.push(edge);
                self.out[from as usize].push(at);
                self.into[to as usize].push(at);
            }
        }
    }

    /// Returns the number of nodes. Nodes are created only by adding edges, so every node has an
    /// edge.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Returns all edges of the graph.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Returns a node by its number.
    pub fn node(&self, number: u32) -> Node {
        self.nodes[number as usize]
    }

    /// Returns the edges of the path with the greatest sum of weights, in order. Negative weights
    /// count as zero. Returns `None` if the graph has a cycle.
    pub fn longest_path(&self) -> Option<Vec<Edge>> {
        let order = self.topological()?;
        let mut best: Vec<(i64, Option<u32>)> = vec![(0, None); self.nodes.len()];
        for &node in &order {
            let mut longest: Option<(i64, u32)> = None;
            for &at in &self.into[node as usize] {
                let edge = &self.edges[at as usize];
                let length = best[edge.from as usize].0 + edge.weight.max(0);
                if longest.is_none_or(|(so_far, _)| length > so_far) {
                    longest = Some((length, at));
                }
            }
            if let Some((length, at)) = longest {
                best[node as usize] = (length, Some(at));
            }
        }
        let mut end: Option<u32> = None;
        for &node in &order {
            if end.is_none_or(|end| best[node as usize].0 > best[end as usize].0) {
                end = Some(node);
            }
        }
        let mut path = Vec::new();
        let mut at = end.and_then(|end| best[end as usize].1);
        while let Some(edge) = at {
            let edge = self.edges[edge as usize];
            path.push(edge);
            at = best[edge.from as usize].1;
        }
        path.reverse();
        Some(path)
    }

    /// Returns the nodes in topological order, generation by generation; `None` if there is a
    /// cycle.
    fn topological(&self) -> Option<Vec<u32>> {
        let mut left: Vec<usize> = self.into.iter().map(Vec::len).collect();
        let mut order: Vec<u32> =
            (0..self.nodes.len() as u32).filter(|node| left[*node as usize] == 0).collect();
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            next += 1;
            for &at in &self.out[node as usize] {
                let to = self.edges[at as usize].to;
                left[to as usize] -= 1;
                if left[to as usize] == 0 {
                    order.push(to);
                }
            }
        }
        (order.len() == self.nodes.len()).then_some(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(event: u32) -> Node {
        Node { event, end: false }
    }

    fn graph(edges: &[(u32, u32, i64)]) -> Graph {
        let mut graph = Graph::default();
        for &(from, to, weight) in edges {
            graph.add(node(from), node(to), weight, EdgeKind::Operator);
        }
        graph
    }

    fn events(graph: &Graph) -> Vec<(u32, u32)> {
        let of = |number| graph.node(number).event;
        let path = graph.longest_path().unwrap();
        path.iter().map(|edge| (of(edge.from), of(edge.to))).collect()
    }

    #[test]
    fn the_longest_path_is_found() {
        let graph = graph(&[(1, 2, 5), (1, 3, 2), (3, 2, 4), (2, 4, 1), (5, 4, 3)]);
        assert_eq!(events(&graph), [(1, 3), (3, 2), (2, 4)]);
        assert_eq!((graph.nodes(), graph.edges().len()), (5, 5));
    }

    #[test]
    fn a_later_edge_replaces_an_earlier_one_and_a_cycle_has_no_path() {
        let graph = graph(&[(1, 2, 9), (1, 2, 1), (1, 3, 2)]);
        assert_eq!((graph.edges().len(), events(&graph)), (2, vec![(1, 3)]));
        let cycle = self::graph(&[(1, 2, 1), (2, 1, 1)]);
        assert!(cycle.longest_path().is_none());
        assert_eq!(Graph::default().longest_path().unwrap().len(), 0);
    }

    #[test]
    fn weights_below_zero_count_as_zero() {
        let graph = graph(&[(1, 2, -5), (2, 3, 2), (4, 3, 1)]);
        assert_eq!(events(&graph), [(1, 2), (2, 3)]);
    }
}
