//! Counts the losses of a run, and lists what could not be recorded.

use super::collector_stall::CollectorStall;
use std::collections::{BTreeMap, HashSet};
use tprof_trace::run::BlindSpot;

/// Number of entries in the list of what could not be recorded. The limit bounds the collector's
/// memory in a build with millions of processes.
pub(super) const MAX_BLIND: usize = 10_000;

/// The losses of a run by kind, and what could not be recorded.
#[derive(Default)]
pub struct Losses {
    by_kind: BTreeMap<(String, String), u64>,
    /// What could not be recorded, by process.
    pub(super) blind: Vec<BlindSpot>,
    /// Detects that the collector stood still, which explains some losses.
    pub standstill: CollectorStall,
    complaints: HashSet<String>,
}

impl Losses {
    /// Adds something that could not be recorded of a process.
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

    /// Adds something that could not be recorded, unless the list already has it for another
    /// process.
    pub fn add_blind_once(&mut self, blind: BlindSpot) {
        if !self.blind.iter().any(|known| known.what == blind.what && known.why == blind.why) {
            self.add_blind(blind);
        }
    }

    /// Counts a loss. A count of 0 means that the number is unknown.
    pub fn lose(&mut self, what: &str, why: &str, count: u64) {
        *self.by_kind.entry((what.to_owned(), why.to_owned())).or_insert(0) += count;
    }

    /// Returns what could not be recorded so far.
    #[cfg(test)]
    pub fn blind(&self) -> &[BlindSpot] {
        &self.blind
    }

    /// Returns the losses: what was lost, why, and how many.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.by_kind.iter().map(|((what, why), count)| (what.as_str(), why.as_str(), *count))
    }

    /// Prints a line on stderr, for example that the disk is full. The same line is printed only
    /// once.
    pub fn complain(&mut self, what: &str) {
        if self.complaints.insert(what.to_owned()) {
            eprintln!("tprof: {what}");
        }
    }
}
