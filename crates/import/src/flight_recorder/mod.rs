//! Reads dumps of PyTorch's Flight Recorder as states of ranks, from which `tprof where` makes its
//! verdict.
//!
//! The Flight Recorder has the last operations between ranks of a process in a ring buffer: each
//! with its group, its number there, its tensors, how far it has come, and the stack that called it.
//! When a job times out, or when it is asked, each rank writes its buffer into a file, whose name
//! ends with the rank: as a pickle, or as JSON without stacks.
//!
//! Collectives of one group are compared by the numbers that PyTorch gave them. Sends and receives
//! have no number that both sides share, so those from one rank to another are counted.

mod dump;
mod files;
mod node;
mod states;
mod tensors;

pub use files::{DumpsError, has_dumps};

use std::path::Path;
use tprof_hang::Answer;

/// Reads a dump, or all dumps in a directory, and judges them. A dump that can't be read is among the
/// ranks that have not answered.
///
/// # Errors
///
/// There is no dump, its rank is unknown, or the dumps in the directory are of several jobs.
pub fn standstill(path: &Path) -> Result<Answer, DumpsError> {
    Ok(states::answer(files::read(path)?))
}
