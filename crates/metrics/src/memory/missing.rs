//! The texts that reports print in place of missing figures of the heap.

use tprof_trace::TraceFile;
use tprof_trace::model::{Mark, MarkKind, ProcessIndex};

/// The reason why live bytes are unknown in a cycle.
pub(crate) const CYCLE: &str =
    "a part's records begin with it: what was live before, and was given back within, is unknown";
/// The reason why frees are unknown in a cycle of a sampled run.
pub(crate) const SAMPLED_CYCLE: &str =
    "under --mem sampled frees are counted over a process's life, not by part of the run";
/// The reason why the time of the peak is unknown in a cycle of a sampled run.
pub(crate) const NO_TIME: &str =
    "under --mem sampled the highest live bytes of a cycle are estimated, without their time";
/// The reason why the heap is unknown in a file that ends too early.
pub(crate) const NO_PROCESS: &str = "the file has no process: it ends before the first";
/// The reason why the heap is unknown for a process whose allocations were not recorded.
pub(crate) const OFF: &str =
    "allocations were not recorded (--mem off, attached while it ran, or an allocator of its own)";

/// Returns the reason why live bytes are unknown after a gap in the recording. The text names the
/// switch that caused the gap: an option or a command.
pub(crate) fn gap(file: &TraceFile) -> String {
    let when = match switches(file).first() {
        None => "recording was off, or the collector stood still, for a while".to_owned(),
        Some(mark) if mark.kind == MarkKind::RecordingOn => {
            format!("recording was off at first (until: {})", file.name(mark.name))
        }
        Some(mark) if is_before_all(file, mark) => {
            format!("recording was off at first ({})", file.name(mark.name))
        }
        Some(mark) => format!("recording was off for a while (from: {})", file.name(mark.name)),
    };
    format!("{when}; allocations and frees of that time are unknown")
}

/// Returns the reason why nothing is known of a file whose processes were never recorded; `None` if
/// they were, for any time.
pub(crate) fn never_on(file: &TraceFile) -> Option<String> {
    let switches = switches(file);
    let first = switches.first().filter(|mark| is_before_all(file, mark))?;
    let is_on = switches.iter().any(|mark| mark.kind == MarkKind::RecordingOn);
    (!is_on).then(|| format!("recording was never on ({})", file.name(first.name)))
}

/// Returns the time at which recording began, if it was off at first and on ever since, ns.
/// Blocks that were allocated after this time are all known.
pub(crate) fn began_ns(file: &TraceFile) -> Option<u64> {
    let switches = switches(file);
    let rest = match switches.as_slice() {
        [off, rest @ ..] if is_before_all(file, off) => rest,
        all => all,
    };
    match rest {
        [on] if on.kind == MarkKind::RecordingOn && on.process.is_none() => Some(on.time_ns),
        _ => None,
    }
}

/// Whether recording was off for a while in a process's life, which ended at `end_ns`.
pub(crate) fn was_off(file: &TraceFile, process: ProcessIndex, end_ns: u64) -> bool {
    let start_ns = file.process(process).map_or(0, |of| of.start_ns);
    let mine = |mark: &&Mark| mark.process.is_none_or(|of| of == process);
    let switches: Vec<&Mark> = switches(file).into_iter().filter(mine).collect();
    // Before the first switch, recording was off if that switches it on.
    let is_on = |mark: &&Mark| mark.kind == MarkKind::RecordingOn;
    let mut off_since = switches.first().copied().filter(is_on).map(|_| 0);
    for mark in switches {
        if mark.kind == MarkKind::RecordingOff {
            off_since = off_since.or(Some(mark.time_ns));
        } else if off_since.take().is_some_and(|since| since < end_ns && mark.time_ns > start_ns) {
            return true;
        }
    }
    off_since.is_some_and(|since| since < end_ns)
}

/// Whether this mark switched recording off before the first process of the file began.
fn is_before_all(file: &TraceFile, mark: &Mark) -> bool {
    let first_ns = file.processes().iter().map(|of| of.start_ns).min();
    mark.kind == MarkKind::RecordingOff && first_ns.is_none_or(|first| mark.time_ns <= first)
}

/// Returns the switches of recording, in order of time.
fn switches(file: &TraceFile) -> Vec<&Mark> {
    let is_switch =
        |mark: &&Mark| matches!(mark.kind, MarkKind::RecordingOn | MarkKind::RecordingOff);
    let mut switches: Vec<&Mark> = file.marks().iter().filter(is_switch).collect();
    switches.sort_by_key(|mark| mark.time_ns);
    switches
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_fixture::runs::{Maker, START};
    use tprof_trace::model::MemoryRecording;

    /// A file with one process, which begins 100 ns into the run, and these switches of the session.
    fn switched(marks: &[(u64, bool)]) -> TraceFile {
        let directory = tempfile::tempdir().unwrap();
        let mut made = Maker::new(directory.path(), "rank-0.tprof");
        made.process(7, 100, MemoryRecording::Exact);
        for (at, is_on) in marks {
            let kind = if *is_on { MarkKind::RecordingOn } else { MarkKind::RecordingOff };
            made.mark(*at, "--paused", kind);
        }
        TraceFile::open(&made.finish()).unwrap()
    }

    #[test]
    fn recording_was_off_if_a_pause_and_the_life_overlap() {
        let was_off = |marks: &[(u64, bool)]| was_off(&switched(marks), 0, START + 200);
        assert!(!was_off(&[]));
        assert!(was_off(&[(150, true)]));
        assert!(!was_off(&[(50, true)]), "before the process");
        assert!(!was_off(&[(20, false), (50, true)]), "before the process");
        assert!(was_off(&[(20, false), (150, true)]));
        assert!(was_off(&[(150, false)]));
        assert!(!was_off(&[(250, false)]), "after the process");
        assert!(was_off(&[(20, false)]), "all the time");
    }

    #[test]
    fn a_file_of_a_run_that_never_began_says_so() {
        let never = |marks: &[(u64, bool)]| never_on(&switched(marks));
        assert_eq!(never(&[(20, false)]).unwrap(), "recording was never on (--paused)");
        assert_eq!(never(&[(20, false), (150, true)]), None);
        assert_eq!(never(&[(150, false)]), None);
        assert_eq!(never(&[]), None);
        assert_eq!(began_ns(&switched(&[(20, false), (150, true)])), Some(START + 150));
        assert_eq!(began_ns(&switched(&[(120, false), (150, true)])), None);
    }
}
