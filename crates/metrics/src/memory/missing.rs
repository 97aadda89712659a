//! The texts that reports print in place of missing figures of the heap.

use tprof_trace::TraceFile;
use tprof_trace::model::{Mark, MarkKind};

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

/// Returns the reason why live bytes are unknown after a gap in the recording. The text names the
/// switch that caused the gap: an option or a command.
pub(crate) fn gap(file: &TraceFile) -> String {
    let when = match switches(file).first() {
        None => "recording was off, or the collector stood still, for a while".to_owned(),
        Some(mark) if mark.kind == MarkKind::RecordingOn => {
            format!("recording was off at first (until: {})", file.name(mark.name))
        }
        Some(mark) => format!("recording was off for a while (from: {})", file.name(mark.name)),
    };
    format!("{when}; allocations and frees of that time are unknown")
}

/// Returns the time at which recording began, if it was off at first and on ever since, ns.
/// Blocks that were allocated after this time are all known.
pub(crate) fn began_ns(file: &TraceFile) -> Option<u64> {
    match switches(file).as_slice() {
        [on] if on.kind == MarkKind::RecordingOn && on.process.is_none() => Some(on.time_ns),
        _ => None,
    }
}

/// Returns the switches of recording, in order of time.
fn switches(file: &TraceFile) -> Vec<&Mark> {
    let is_switch =
        |mark: &&Mark| matches!(mark.kind, MarkKind::RecordingOn | MarkKind::RecordingOff);
    let mut switches: Vec<&Mark> = file.marks().iter().filter(is_switch).collect();
    switches.sort_by_key(|mark| mark.time_ns);
    switches
}
