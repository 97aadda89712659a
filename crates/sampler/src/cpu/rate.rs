//! The default and the highest rate of sampling.

use tprof_os::proc;

/// Default number of samples per second. Usual timers don't fire at multiples of it, so samples
/// don't coincide with them.
pub const DEFAULT_RATE: u32 = 99;

/// Returns the highest number of samples per second that the kernel permits.
pub fn highest_rate() -> u32 {
    let most = proc::setting("kernel/perf_event_max_sample_rate");
    most.and_then(|most| most.parse().ok()).unwrap_or(100_000)
}
