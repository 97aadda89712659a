//! The list of blocks of a file that could not be read, by any reader.

use crate::error::Problem;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// A file full of damage is described by its first problems.
const MAX_PROBLEMS: usize = 1000;

/// The damage that readers of one file have met so far, each block once. Large tables are read many
/// times, and each reader skips what it cannot decode: this list has the damage whether or not the
/// reader asks.
#[derive(Clone, Debug, Default)]
pub struct DamageList(Arc<Mutex<BTreeSet<(u64, String)>>>);

impl DamageList {
    /// Adds a part that could not be read.
    pub(crate) fn add(&self, problem: &Problem) {
        let mut met = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if met.len() < MAX_PROBLEMS {
            met.insert((problem.offset, problem.what.clone()));
        }
    }

    /// Returns what could not be read so far, in the order of the file.
    pub fn problems(&self) -> Vec<Problem> {
        let met = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let problem =
            |(offset, what): &(u64, String)| Problem { offset: *offset, what: what.clone() };
        met.iter().map(problem).collect()
    }
}
