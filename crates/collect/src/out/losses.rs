//! The losses of a run, and the data that could not be recorded.

use super::collector_stall::CollectorStall;
use std::collections::{BTreeMap, HashSet};
use tprof_trace::run::BlindSpot;

/// Number of processes with unrecorded data that are kept, so that a build with millions of
/// processes does not fill the collector's memory.
pub(super) const MAX_BLIND: usize = 10_000;

/// The losses of a run, by kind.
#[derive(Default)]
pub struct Losses {
    by_kind: BTreeMap<(String, String), u64>,
    /// Data that could not be recorded, by process.
    pub(super) blind: Vec<BlindSpot>,
    /// Detects that the collector stands still, and losses because of that.
    pub standstill: CollectorStall,
    complaints: HashSet<String>,
}

impl Losses {
    /// Adds something that was not recorded of a process.
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

    /// Like [`Losses::add_blind`], but adds only one entry, however many processes it concerns.
    pub fn add_blind_once(&mut self, blind: BlindSpot) {
        if !self.blind.iter().any(|known| known.what == blind.what && known.why == blind.why) {
            self.add_blind(blind);
        }
    }

    /// Counts a loss. A count of 0 means that the number is unknown.
    pub fn lose(&mut self, what: &str, why: &str, count: u64) {
        *self.by_kind.entry((what.to_owned(), why.to_owned())).or_insert(0) += count;
    }

    /// Returns what could not be recorded so far, by process.
    #[cfg(test)]
    pub fn blind(&self) -> &[BlindSpot] {
        &self.blind
    }

    /// Returns the losses: what was lost, why, and how many.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.by_kind.iter().map(|((what, why), count)| (what.as_str(), why.as_str(), *count))
    }

    /// Prints a line on stderr, but each line only once: for example, that the disk is full.
    pub fn complain(&mut self, what: &str) {
        if self.complaints.insert(what.to_owned()) {
            eprintln!("tprof: {what}");
        }
    }
}
