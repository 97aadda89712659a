//! The destination of everything that is recorded.

use super::files::Files;
use super::processes::Processes;
use crate::shared::clock::Clock;

/// The rank files, the records of every process, and the clock that joins both to the targets'.
pub struct Output {
    /// Converts the targets' clock.
    pub clock: Clock,
    /// The open trace files.
    pub files: Files,
    /// Records of every process, and of losses.
    pub processes: Processes,
}

impl Output {
    /// Without any process yet.
    pub fn new(clock: Clock, files: Files) -> Output {
        Output { clock, files, processes: Processes::default() }
    }
}
