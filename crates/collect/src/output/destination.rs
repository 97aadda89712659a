//! The destination of everything that is recorded.

use super::files::Files;
use super::processes::Processes;
use super::transfers::Transfers;
use crate::shared::clock::Clock;

/// The rank files, the state of all processes, and the clock that converts the targets' times.
pub struct Output {
    /// Converts the ticks of targets to ns.
    pub clock: Clock,
    /// The open trace files.
    pub files: Files,
    /// The state of all processes, and the losses.
    pub processes: Processes,
    /// The bytes that processes transferred.
    pub transfers: Transfers,
}

impl Output {
    /// Returns an output without processes.
    pub fn new(clock: Clock, files: Files) -> Output {
        Output { clock, files, processes: Processes::default(), transfers: Transfers::default() }
    }
}
