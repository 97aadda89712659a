//! The losses of a run, and the data that could not be recorded.

use super::collector_stall::CollectorStall;
use std::collections::{BTreeMap, HashSet};
use tprof_trace::run::BlindSpot;

/// Entries of this kind that are kept; a build of millions of processes must not
/// fill the collector's memory.
pub(super) const MAX_BLIND: usize = 10_000;

/// See the module.
#[derive(Default)]
pub struct Losses {
    by_kind: BTreeMap<(String, String), u64>,
    /// Data that could not be recorded, by process.
    pub(super) blind: Vec<BlindSpot>,
    /// Whether the collector makes progress, and what was lost because it did not.
    pub standstill: CollectorStall,
    complaints: HashSet<String>,
}

impl Losses {
    /// Adds a process of which something cannot be recorded.
    pub fn add_blind(&mut self, blind: BlindSpot) {
        if self.blind.len() < MAX_BLIND {
            self.blind.push(blind);
        } else {
            self.lose(
                "entries in the list of processes that were not recorded",
                "there were too many",
                1,
            );
        }
    }

    /// Does the same as [`Losses::add_blind`], but only once however many processes it concerns.
    pub fn add_blind_once(&mut self, blind: BlindSpot) {
        if !self.blind.iter().any(|known| known.what == blind.what && known.why == blind.why) {
            self.add_blind(blind);
        }
    }

    /// Counts a loss; 0: an unknown number.
    pub fn lose(&mut self, what: &str, why: &str, count: u64) {
        *self.by_kind.entry((what.to_owned(), why.to_owned())).or_insert(0) += count;
    }

    /// Returns what could not be recorded so far, by process.
    #[cfg(test)]
    pub fn blind(&self) -> &[BlindSpot] {
        &self.blind
    }

    /// Losses by kind.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.by_kind.iter().map(|((what, why), count)| (what.as_str(), why.as_str(), *count))
    }

    /// Prints a line once on stderr: the disk is full, a file is gone.
    pub fn complain(&mut self, what: &str) {
        if self.complaints.insert(what.to_owned()) {
            eprintln!("tprof: {what}");
        }
    }
}
