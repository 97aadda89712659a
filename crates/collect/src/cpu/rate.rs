//! The highest rate of sampling.

use crate::os::proc;

/// Samples a second by default; not a divisor of the frequencies that timers use.
pub const DEFAULT_RATE: u32 = 99;

/// Most samples a second that the kernel grants.
pub fn highest_rate() -> u32 {
    let most = proc::setting("kernel/perf_event_max_sample_rate");
    most.and_then(|most| most.parse().ok()).unwrap_or(100_000)
}
