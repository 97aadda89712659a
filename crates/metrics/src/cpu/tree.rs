//! Builds trees of callers and callees from stacks, with the time of each node.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::{Func, Layer};

/// A node of a tree, with the indices of its children.
#[derive(Clone, Debug)]
pub struct CallNode {
    /// The function of this node; `None` for the root.
    pub func: Option<Func>,
    /// Time in the function and its callees, ns.
    pub total_ns: u64,
    /// Time in the function itself, ns.
    pub self_ns: u64,
    children: Vec<usize>,
}

/// A tree of functions.
#[derive(Clone, Debug)]
pub struct FunctionTree {
    nodes: Vec<CallNode>,
    by_place: FxHashMap<(usize, Arc<str>, Arc<str>, Layer), usize>,
}

impl Default for FunctionTree {
    fn default() -> FunctionTree {
        let root = CallNode { func: None, total_ns: 0, self_ns: 0, children: Vec::new() };
        FunctionTree { nodes: vec![root], by_place: FxHashMap::default() }
    }
}

impl FunctionTree {
    /// Time of the whole tree, ns.
    #[cfg(test)]
    pub fn total_ns(&self) -> u64 {
        self.nodes[0].total_ns
    }

    /// Adds time at the end of a path from the root.
    pub fn add<'a>(&mut self, path: impl Iterator<Item = &'a Func>, weight_ns: u64) {
        let mut at = 0;
        self.nodes[0].total_ns += weight_ns;
        for func in path {
            let key = (at, Arc::clone(&func.name), Arc::clone(&func.module), func.layer);
            at = match self.by_place.get(&key) {
                Some(found) => *found,
                None => {
                    let new = self.nodes.len();
                    self.nodes.push(CallNode {
                        func: Some(func.clone()),
                        total_ns: 0,
                        self_ns: 0,
                        children: Vec::new(),
                    });
                    self.nodes[at].children.push(new);
                    self.by_place.insert(key, new);
                    new
                }
            };
            self.nodes[at].total_ns += weight_ns;
        }
        self.nodes[at].self_ns += weight_ns;
    }

    /// Adds another tree to this one.
    pub fn merge(&mut self, other: &FunctionTree) {
        other.walk(|path, node| {
            if node.self_ns > 0 {
                self.add(path.iter().copied(), node.self_ns);
            }
        });
    }

    /// Calls `take` for each node after its caller, with the functions from the outermost to that
    /// of the node. This does not recurse, since stacks in other tools' traces have no limit of
    /// depth.
    fn walk<'a>(&'a self, mut take: impl FnMut(&[&'a Func], &'a CallNode)) {
        let (mut path, mut open) = (Vec::new(), vec![(0, 0)]);
        while let Some((at, children_done)) = open.last_mut() {
            let node: &CallNode = &self.nodes[*at];
            if *children_done == 0 {
                path.extend(node.func.as_ref());
                take(&path, node);
            }
            let next = node.children.get(*children_done).copied();
            *children_done += 1;
            match next {
                Some(child) => open.push((child, 0)),
                None => {
                    open.pop();
                    if node.func.is_some() {
                        path.pop();
                    }
                }
            }
        }
    }

    /// Returns the nodes with at least `least_ns`, each after its caller and the heaviest first,
    /// with their depths. If each function of a chain of calls spends nearly all of its time in the
    /// next one, only the two ends of the chain are returned.
    pub fn shown(&self, least_ns: u64) -> Vec<(usize, &CallNode)> {
        let mut out = Vec::new();
        self.show(0, 0, least_ns.max(1), &mut out);
        out
    }

    fn show<'a>(
        &'a self,
        at: usize,
        depth: usize,
        least: u64,
        out: &mut Vec<(usize, &'a CallNode)>,
    ) {
        let mut children: Vec<&usize> = self.nodes[at].children.iter().collect();
        children.retain(|child| self.nodes[**child].total_ns >= least);
        children.sort_rows_by(|a, b| {
            let (a, b) = (&self.nodes[**a], &self.nodes[**b]);
            let name = |n: &CallNode| n.func.as_ref().map(|f| Arc::clone(&f.name));
            b.total_ns.cmp(&a.total_ns).then_with(|| name(a).cmp(&name(b)))
        });
        for child in children {
            let mut end = *child;
            out.push((depth, &self.nodes[end]));
            // Skip the functions between the two ends of a chain that passes nearly all of its time
            // on.
            let first = end;
            while let Some(next) = self.only_child(end) {
                end = next;
            }
            if end != first {
                out.push((depth + 1, &self.nodes[end]));
                self.show(end, depth + 2, least, out);
            } else {
                self.show(end, depth + 1, least, out);
            }
        }
    }

    /// The child that has nearly all of a node's time, if there is one.
    fn only_child(&self, at: usize) -> Option<usize> {
        let node = &self.nodes[at];
        let all = |child: &&usize| self.nodes[**child].total_ns * 50 >= node.total_ns * 49;
        node.children.iter().find(all).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn func(name: &str) -> Func {
        Func { name: name.into(), file: "".into(), module: "m".into(), layer: Layer::Native }
    }

    #[test]
    fn chains_are_folded_to_their_ends_and_times_add_up() {
        let [main, run, step, a, b] = ["main", "run", "step", "a", "b"].map(func);
        let mut tree = FunctionTree::default();
        tree.add([&main, &run, &step, &a].into_iter(), 70);
        tree.add([&main, &run, &step, &b].into_iter(), 30);
        let mut twice = FunctionTree::default();
        twice.merge(&tree);
        twice.merge(&tree);
        assert_eq!(twice.total_ns(), 200);
        let shown: Vec<_> = (twice.shown(2).iter())
            .map(|(depth, n)| (*depth, n.func.as_ref().unwrap().name.to_string(), n.total_ns))
            .collect();
        let row = |depth, name: &str, total| (depth, name.to_owned(), total);
        let expected =
            [row(0, "main", 200), row(1, "step", 200), row(2, "a", 140), row(2, "b", 60)];
        assert_eq!(shown, expected);
    }
    #[test]
    fn very_deep_stacks_do_not_overflow_the_stack() {
        let again = func("again");
        let mut tree = FunctionTree::default();
        tree.add(std::iter::repeat_n(&again, 200_000), 5);
        let mut twice = FunctionTree::default();
        twice.merge(&tree);
        twice.merge(&tree);
        assert_eq!((twice.total_ns(), twice.shown(1).len()), (10, tree.shown(1).len()));
    }
}
