//! Converts times of a rank's file to positions on TensorBoard's axes.

use tprof_facts::{Step, Zero};

use super::events::EventTime;
use crate::OpenRank;

/// Returns the time when a rank's file begins, in seconds since 1970.
pub(super) fn start_s(part: &OpenRank<'_>, zero: Zero) -> f64 {
    let first_ns = part.trace.extent_ns().map_or(0, |(first_ns, _)| first_ns);
    wall_s(zero, part.since_start(first_ns))
}

/// Returns the position of a step: its number, and the time of its end.
pub(super) fn at_step(zero: Zero, part: &OpenRank<'_>, step: &Step) -> EventTime {
    EventTime { step: step.number, wall_s: wall_s(zero, part.since_start(step.end_ns)) }
}

/// Returns the position of a time on the file's clock. Its step number is the milliseconds since
/// the run began.
pub(super) fn at_time(zero: Zero, part: &OpenRank<'_>, time_ns: u64) -> EventTime {
    let since_start_ns = part.since_start(time_ns);
    EventTime { step: since_start_ns / 1_000_000, wall_s: wall_s(zero, since_start_ns) }
}

/// Converts a time since the run began to seconds since 1970. If the run's beginning is unknown,
/// the result counts from that beginning.
pub(super) fn wall_s(zero: Zero, since_start_ns: u64) -> f64 {
    zero.unix_ns.saturating_add(since_start_ns) as f64 / 1e9
}
