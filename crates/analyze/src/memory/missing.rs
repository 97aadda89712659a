//! Why numbers of the heap are missing.

/// Why live bytes are unknown after a gap in the recording.
pub(crate) const PARTIAL: &str = "recording did not cover the whole life (--delay, --duration, --max-size, --paused, --schedule, --capture-range, tprof ctl, or a collector that stood still)";
/// Why nothing is known of the heap of a process that was not recorded.
pub(crate) const OFF: &str =
    "allocations were not recorded (--mem off, or the program has its own allocator)";
