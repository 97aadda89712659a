//! The texts that reports print in place of missing figures of the heap.

/// The reason why live bytes are unknown after a gap in the recording.
pub(crate) const PARTIAL: &str = "recording did not cover the whole life (--delay, --duration, --max-size, --paused, --schedule, --capture-range, tprof ctl, or a collector that stood still)";
/// The reason why live bytes are unknown in a cycle.
pub(crate) const CYCLE: &str =
    "a cycle's records begin with it: what was live before, and was given back within, is unknown";
/// The reason why frees are unknown in a cycle of a sampled run.
pub(crate) const SAMPLED_CYCLE: &str =
    "under --mem sampled frees are counted over a process's life, not by cycle";
/// The reason why the time of the peak is unknown in a cycle of a sampled run.
pub(crate) const NO_TIME: &str =
    "under --mem sampled the highest live bytes of a cycle are estimated, without their time";
/// The reason why the heap is unknown in a file that ends too early.
pub(crate) const NO_PROCESS: &str = "the file has no process: it ends before the first";
/// The reason why the heap is unknown for a process whose allocations were not recorded.
pub(crate) const OFF: &str =
    "allocations were not recorded (--mem off, or the program has its own allocator)";
