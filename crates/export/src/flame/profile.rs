//! Defines the profiles of a page. A profile is a tree of stacks with one or several measures.

use serde_json::{Value, json};

use super::tree::{FrameTable, ROOT, Tree};
use crate::page::Payload;

/// Largest number of nodes of a tree on a page. If a tree has more, the smallest are grouped.
const MOST_NODES: usize = 120_000;

/// A quantity that every node has a value of.
pub(crate) struct Measure {
    pub label: &'static str,
    /// `ns`, `bytes` or `count`.
    pub unit: &'static str,
    /// Description of the measure in a sentence.
    pub about: &'static str,
}

/// One tree with its numbers.
pub(crate) struct Profile {
    pub key: &'static str,
    pub label: &'static str,
    pub measures: &'static [Measure],
    /// Text for an empty profile: how to record its data.
    pub empty: &'static str,
    pub tree: Tree,
    /// For each measure, whether any value is an estimate.
    pub estimate: bool,
    sides: usize,
    side: usize,
}

impl Profile {
    /// Creates a profile. `sides` is 2 if two runs are compared, otherwise 1.
    pub fn new(
        key: &'static str,
        label: &'static str,
        measures: &'static [Measure],
        empty: &'static str,
        sides: usize,
    ) -> Profile {
        let tree = Tree::new(measures.len() * sides);
        Profile { key, label, measures, empty, tree, estimate: false, sides, side: 0 }
    }

    /// Whether no value was added.
    pub fn is_empty(&self) -> bool {
        self.tree.len() == 1
    }

    /// Selects the side of the values that follow: 0 for the run, 1 for the baseline.
    pub fn set_side(&mut self, side: usize) {
        self.side = side;
    }

    /// Returns the node at the end of `above` and `frames`, one after the other.
    pub fn node(&mut self, above: &[u32], frames: &[u32]) -> u32 {
        let at = self.tree.path(ROOT, above);
        self.tree.path(at, frames)
    }

    pub fn add(&mut self, node: u32, measure: usize, value: f64) {
        self.tree.add(node, measure * self.sides + self.side, value);
    }

    /// Packs the tree's columns into the payload. Returns the profile's entry in the payload's
    /// head.
    pub fn pack(self, table: &mut FrameTable, payload: &mut Payload) -> Value {
        let (measures, sides, key) = (self.measures, self.sides, self.key);
        let (tree, pruned) = self.tree.pruned(MOST_NODES, table);
        let nodes = 0..tree.len() as u32;
        let parents: Vec<u64> = tree.parents.iter().map(|&parent| parent.into()).collect();
        let frames: Vec<u64> = tree.frames.iter().map(|&frame| frame.into()).collect();
        payload.differences(&format!("{key}.parent"), &parents);
        payload.column(&format!("{key}.frame"), &frames);
        for column in 0..measures.len() * sides {
            let values: Vec<u64> = rounded(nodes.clone().map(|node| tree.value(node, column)));
            payload.column(&format!("{key}.value{column}"), &values);
        }
        let measures: Vec<Value> = (measures.iter().enumerate())
            .map(|(at, measure)| {
                json!({
                    "label": measure.label, "unit": measure.unit, "about": measure.about,
                    "total": tree.total(at * sides),
                })
            })
            .collect();
        json!({
            "key": key, "label": self.label, "empty": self.empty, "measures": measures,
            "estimate": self.estimate, "grouped": pruned.frames, "groupedShare": pruned.share,
        })
    }
}

/// Rounds values to whole numbers so that each running sum stays within one of the exact sum.
pub(super) fn rounded(values: impl Iterator<Item = f64>) -> Vec<u64> {
    let mut owed = 0.0;
    values
        .map(|value| {
            if value <= 0.0 {
                return 0;
            }
            let whole = (value + owed).round().max(0.0);
            owed += value - whole;
            whole as u64
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_keeps_the_sum_and_the_zeros() {
        let values = rounded([0.4, 0.0, 0.4, 0.4, 0.0, 7.0].into_iter());
        assert_eq!(values.iter().sum::<u64>(), 8);
        assert_eq!((values[1], values[4]), (0, 0));
    }
}
