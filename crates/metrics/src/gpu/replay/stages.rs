//! Finds the ranks that messages join, such as the stages of a pipeline, and what each of them needs
//! of its own compared with the others.
//!
//! Stages don't do the same before each message: the last one computes forward and backward in one
//! go. So their times are compared over all of their meetings, and not before each one.

use std::collections::BTreeMap;

use tprof_rank::base::stats::median;

use super::graph::GraphRow;

/// The ranks that messages join.
#[derive(Debug)]
pub(super) struct Stages {
    /// For each rank, the lowest rank that messages join with it; its own number if there is none.
    first: Vec<u32>,
    /// For each rank, the median of the own times of those that it is joined with / its own; `None`
    /// if there is none.
    ratios: Vec<Option<f64>>,
}

impl Stages {
    /// Joins ranks. `pairs` has the pairs that messages join.
    pub fn of(rows: &[Vec<GraphRow>], pairs: impl Iterator<Item = (u32, u32)>) -> Stages {
        let mut first: Vec<u32> = (0..rows.len() as u32).collect();
        for (a, b) in pairs {
            let (a, b) = (lowest(&first, a), lowest(&first, b));
            first[a.max(b) as usize] = a.min(b);
        }
        let first: Vec<u32> = (0..rows.len() as u32).map(|rank| lowest(&first, rank)).collect();
        let own = |rows: &Vec<GraphRow>| {
            let counts = rows.iter().filter(|row| !row.is_first);
            counts.map(|row| row.of.before_ns + row.of.hidden_ns).sum::<u64>()
        };
        let own: Vec<u64> = rows.iter().map(own).collect();
        let mut joined: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (rank, first) in first.iter().enumerate() {
            joined.entry(*first).or_default().push(rank);
        }
        let ratio = |(rank, first): (usize, &u32)| {
            let others = joined[first].iter().filter(|other| **other != rank);
            let others: Vec<u64> = others.map(|other| own[*other]).collect();
            (!others.is_empty() && own[rank] > 0).then(|| median(others) as f64 / own[rank] as f64)
        };
        let ratios = first.iter().enumerate().map(ratio).collect();
        Stages { first, ratios }
    }

    /// Whether messages join two ranks, perhaps by way of others.
    pub fn are_joined(&self, one: u32, other: u32) -> bool {
        self.first[one as usize] == self.first[other as usize]
    }

    /// Returns the median of the own times of the ranks that a rank is joined with, over its own;
    /// `None` if it is joined with none.
    pub fn ratio(&self, rank: u32) -> Option<f64> {
        self.ratios[rank as usize]
    }

    /// Returns the sets of joined ranks, of two or more.
    pub fn sets(&self) -> Vec<Vec<u32>> {
        let mut sets: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (rank, first) in (0..).zip(&self.first) {
            sets.entry(*first).or_default().push(rank);
        }
        sets.into_values().filter(|ranks| ranks.len() > 1).collect()
    }
}

fn lowest(first: &[u32], mut rank: u32) -> u32 {
    while first[rank as usize] != rank {
        rank = first[rank as usize];
    }
    rank
}
