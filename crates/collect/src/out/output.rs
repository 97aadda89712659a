//! Everything that recorded data is written to.

use super::files::Files;
use super::processes::Processes;
use crate::shared::clock::Clock;

/// The rank files, the fates of all processes, and the clock that converts the targets' times.
pub struct Output {
    /// Converts the targets' clock.
    pub clock: Clock,
    /// The open trace files.
    pub files: Files,
    /// The fates of all processes, and the losses.
    pub processes: Processes,
}

impl Output {
    /// Returns an output without processes.
    pub fn new(clock: Clock, files: Files) -> Output {
        Output { clock, files, processes: Processes::default() }
    }
}
