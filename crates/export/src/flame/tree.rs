//! Folds stacks into a tree, and defines the table of frames that all trees share.

use rustc_hash::FxHashMap;

/// Kind of a frame. It decides the frame's colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum FrameKind {
    Rank = 0,
    Process = 1,
    Thread = 2,
    Native = 3,
    Python = 4,
    Operator = 5,
    /// NVTX and framework annotations.
    Range = 6,
    /// A call of the CUDA runtime or driver.
    Call = 7,
    Kernel = 8,
    Collective = 9,
    Copy = 10,
    /// A frame that could not be named.
    Unknown = 11,
    /// Several frames that are too small to be shown.
    Group = 12,
    Overhead = 13,
}

/// The owner of a frame's code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum FrameOwner {
    /// A library or the kernel, or a frame that isn't code.
    #[default]
    Library = 0,
    /// Code that the person who runs the job most likely wrote.
    Own = 1,
    /// Python's import system.
    Import = 2,
    /// Native code of Python's interpreter.
    Interpreter = 3,
}

/// Names, kinds and places of all frames.
#[derive(Default)]
pub(crate) struct FrameTable {
    index: FxHashMap<(FrameKind, String, String, FrameOwner), u32>,
    pub names: Vec<String>,
    pub kinds: Vec<FrameKind>,
    /// Module or source file; empty if there is none.
    pub places: Vec<String>,
    pub owners: Vec<FrameOwner>,
}

impl FrameTable {
    /// Returns the frame for something that isn't code, or for code whose origin is unknown.
    pub fn frame(&mut self, kind: FrameKind, name: &str, place: &str) -> u32 {
        self.code(kind, name, place, FrameOwner::default())
    }

    /// Returns the frame for code.
    pub fn code(&mut self, kind: FrameKind, name: &str, place: &str, owner: FrameOwner) -> u32 {
        let key = (kind, name.to_owned(), place.to_owned(), owner);
        *self.index.entry(key).or_insert_with(|| {
            self.owners.push(owner);
            self.names.push(name.to_owned());
            self.kinds.push(kind);
            self.places.push(place.to_owned());
            self.names.len() as u32 - 1
        })
    }
}

/// A tree of frames. Each node has `columns` numbers, which do not include its children.
pub(crate) struct Tree {
    columns: usize,
    pub parents: Vec<u32>,
    pub frames: Vec<u32>,
    values: Vec<f64>,
    children: FxHashMap<(u32, u32), u32>,
}

/// Index of the root node.
pub(crate) const ROOT: u32 = 0;

impl Tree {
    pub fn new(columns: usize) -> Tree {
        Tree {
            columns,
            parents: vec![ROOT],
            frames: vec![0],
            values: vec![0.0; columns],
            children: FxHashMap::default(),
        }
    }

    pub fn len(&self) -> usize {
        self.parents.len()
    }

    /// Returns the node of `frame` below `parent`, and creates it if needed.
    pub fn child(&mut self, parent: u32, frame: u32) -> u32 {
        *self.children.entry((parent, frame)).or_insert_with(|| {
            self.parents.push(parent);
            self.frames.push(frame);
            self.values.resize(self.values.len() + self.columns, 0.0);
            self.parents.len() as u32 - 1
        })
    }

    /// Returns the node at the end of a path below `parent`.
    pub fn path(&mut self, parent: u32, frames: &[u32]) -> u32 {
        frames.iter().fold(parent, |node, &frame| self.child(node, frame))
    }

    pub fn add(&mut self, node: u32, column: usize, value: f64) {
        self.values[node as usize * self.columns + column] += value;
    }

    pub fn value(&self, node: u32, column: usize) -> f64 {
        self.values[node as usize * self.columns + column]
    }

    /// Returns the sum of a column over all nodes.
    pub fn total(&self, column: usize) -> f64 {
        self.values.iter().skip(column).step_by(self.columns).sum()
    }

    /// Returns the frames from below the root to `node`.
    pub fn frames_of(&self, mut node: u32) -> Vec<u32> {
        let mut frames = Vec::new();
        while node != ROOT {
            frames.push(self.frames[node as usize]);
            node = self.parents[node as usize];
        }
        frames.reverse();
        frames
    }

    /// Returns each node's totals in each column, including everything below it. This relies on the
    /// order of nodes: children come after their parents.
    fn inclusive(&self) -> Vec<f64> {
        let mut sums = self.values.clone();
        for node in (1..self.len()).rev() {
            let parent = self.parents[node] as usize;
            for column in 0..self.columns {
                sums[parent * self.columns + column] += sums[node * self.columns + column];
            }
        }
        sums
    }

    /// Returns a tree of about `most` nodes at most. The subtrees with the least share in every
    /// column become one group below their parent. The group's name says how many frames it
    /// replaces.
    pub fn pruned(self, most: usize, table: &mut FrameTable) -> (Tree, Pruned) {
        let nodes = self.len();
        if nodes <= most {
            return (self, Pruned::default());
        }
        let sums = self.inclusive();
        let share = |node: usize| {
            let of = |column: usize| {
                sums[node * self.columns + column].abs() / sums[column].abs().max(1e-9)
            };
            (0..self.columns).map(of).fold(0.0, f64::max)
        };
        let shares: Vec<f64> = (0..nodes).map(share).collect();
        let mut sorted = shares.clone();
        let (_, &mut least, _) = sorted.select_nth_unstable_by(nodes - most, f64::total_cmp);
        // If many subtrees have the same small share, remove all of them, because no choice among
        // them would be right.
        let ties = shares.iter().filter(|share| **share >= least).count() > most + most / 8;
        let kept = |node: usize| match node {
            0 => true,
            _ if ties => shares[node] > least,
            _ => shares[node] >= least,
        };
        let mut tree = Tree::new(self.columns);
        let mut place = vec![ROOT; nodes];
        // For each kept node, the number and the values of the nodes that were removed below it.
        let mut groups: FxHashMap<u32, (usize, Vec<f64>)> = FxHashMap::default();
        for node in 0..nodes {
            let parent = self.parents[node] as usize;
            place[node] = match node {
                0 => ROOT,
                // A subtree's share is never larger than its parent's. So if a node is removed,
                // everything below it is removed too, and its values go to its nearest kept
                // ancestor.
                _ if kept(node) => tree.child(place[parent], self.frames[node]),
                _ => place[parent],
            };
            let values = &self.values[node * self.columns..][..self.columns];
            if kept(node) {
                for (column, value) in values.iter().enumerate() {
                    tree.add(place[node], column, *value);
                }
            } else {
                let group =
                    groups.entry(place[node]).or_insert_with(|| (0, vec![0.0; self.columns]));
                group.0 += 1;
                group.1.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
        }
        let mut pruned = Pruned { frames: 0, share: least };
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(parent, _)| *parent);
        for (parent, (count, values)) in groups {
            pruned.frames += count;
            let plural = if count == 1 { "frame" } else { "frames" };
            let frame = table.frame(FrameKind::Group, &format!("({count} small {plural})"), "");
            let node = tree.child(parent, frame);
            for (column, value) in values.into_iter().enumerate() {
                tree.add(node, column, value);
            }
        }
        (tree, pruned)
    }
}

/// Result of the grouping: the number of grouped frames, and the share of the whole that each of
/// them is below.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pruned {
    pub frames: usize,
    pub share: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_frames_are_grouped_without_losing_values() {
        let mut table = FrameTable::default();
        let mut tree = Tree::new(2);
        let main = table.frame(FrameKind::Native, "main", "");
        let at = tree.child(ROOT, main);
        for n in 0..100 {
            let frame = table.frame(FrameKind::Native, &format!("f{n}"), "");
            let node = tree.child(at, frame);
            tree.add(node, 0, f64::from(n));
            let leaf = tree.child(node, main);
            tree.add(leaf, 1, f64::from(n % 3));
        }
        let totals = [tree.total(0), tree.total(1)];
        let (tree, pruned) = tree.pruned(40, &mut table);
        assert!(tree.len() < 60, "{}", tree.len());
        assert!(pruned.frames > 100, "{pruned:?}");
        assert_eq!([tree.total(0), tree.total(1)], totals);
        let groups = tree.frames.iter().filter(|&&f| table.kinds[f as usize] == FrameKind::Group);
        assert!(groups.count() >= 1);
        for node in 1..tree.len() {
            assert!((tree.parents[node] as usize) < node);
        }
    }

    #[test]
    fn a_tree_that_fits_is_unchanged() {
        let mut table = FrameTable::default();
        let mut tree = Tree::new(1);
        let frame = table.frame(FrameKind::Native, "main", "");
        let node = tree.path(ROOT, &[frame, frame]);
        tree.add(node, 0, 0.25);
        let (tree, pruned) = tree.pruned(3, &mut table);
        assert_eq!((tree.len(), pruned.frames), (3, 0));
        assert_eq!(tree.frames_of(2), [frame, frame]);
    }
}
