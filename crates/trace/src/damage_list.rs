//! Lists the damaged blocks of a file that any of its readers met.

use crate::error::Problem;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of problems that are kept. The first ones are enough to describe a file full of
/// damage.
const MAX_PROBLEMS: usize = 1000;

/// All damage that the readers of one file have met so far, each block once. Large tables are read
/// many times, and each reader skips blocks that it can't decode. This list has that damage even if
/// no caller asks the reader for its problems.
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

    /// Returns the parts that couldn't be read so far, in the order of the file.
    pub fn problems(&self) -> Vec<Problem> {
        let met = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let problem =
            |(offset, what): &(u64, String)| Problem { offset: *offset, what: what.clone() };
        met.iter().map(problem).collect()
    }
}
