//! From a file's clock to time since the run began.
//!
//! Every host has a monotonic clock of its own; the wall clocks at the moments
//! at which their collectors began join them.

/// Turns times of one file into times since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// This host's clock when its collector began.
    pub start_ns: u64,
    /// How long after the run's first collector that was.
    pub late_ns: u64,
}

impl Clock {
    /// Nanoseconds since the run began; 0 for anything before.
    pub fn since_start(self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.start_ns).saturating_add(self.late_ns)
    }
}
