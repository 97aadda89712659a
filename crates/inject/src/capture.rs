//! Implements `--capture-range`, with which recording is on only inside a range of the program.
//! Modules that see a range begin or end call [`begins`] and [`ends`].

use crate::block::Thread;
use crate::{schedule, state};
use tprof_wire::capture::{self, CaptureTrigger};
use tprof_wire::sync::Ordering::*;

/// Number of the range between `cudaProfilerStart` and `cudaProfilerStop`.
const PROFILER: u64 = 1;

/// Whether ranges of this kind can start a capture in this process. Only then must callers read the
/// names of ranges.
#[inline(always)]
pub fn is_opened_by(kind: CaptureTrigger) -> bool {
    state::header()
        .is_some_and(|header| capture::opens(header.capture[0].load(Relaxed)) == kind as u64)
}

/// Called when a range begins. `number` is not 0 and identifies the range until it ends.
pub fn begins(thread: &Thread, kind: CaptureTrigger, name: &[u8], number: u64) {
    let Some(header) = state::header().filter(|_| is_opened_by(kind)) else { return };
    let words = header.capture.each_ref().map(|word| word.load(Relaxed));
    if !capture::is_opened(&words, kind, name)
        || header.captures.load(Relaxed) > 0 && !capture::repeats(words[0])
        || header.captured.compare_exchange(0, number, AcqRel, Relaxed).is_err()
    {
        return;
    }
    let count = header.captures.fetch_add(1, Relaxed);
    schedule::switch(thread, header, true, Some(count));
}

/// Called when the range of this number ends.
pub fn ends(thread: &Thread, number: u64) {
    let Some(header) = state::header() else { return };
    if header.captured.compare_exchange(number, 0, AcqRel, Relaxed).is_ok() {
        schedule::switch(thread, header, false, None);
    }
}

/// Called when the program calls `cudaProfilerStart` (`starts` is true) or `cudaProfilerStop`.
pub fn profiler(thread: &Thread, starts: bool) {
    if !is_opened_by(CaptureTrigger::CudaProfiler) {
        return;
    }
    match starts {
        true => begins(thread, CaptureTrigger::CudaProfiler, b"", PROFILER),
        false => ends(thread, PROFILER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Attached;
    use tprof_wire::record::ExtKind;
    use tprof_wire::region::off;

    /// A process that records only within ranges of this kind and name.
    fn capturing(by: CaptureTrigger, name: &[u8], repeats: bool) -> Attached {
        let process = Attached::new();
        let words = capture::pack(by, name, repeats).unwrap();
        for (word, value) in process.header().capture.iter().zip(words) {
            word.store(value, SeqCst);
        }
        process.header().off.store(off::SCHEDULE, SeqCst);
        process
    }

    #[test]
    fn recording_is_on_from_a_ranges_beginning_to_its_end() {
        let process = capturing(CaptureTrigger::Nvtx, b"evaluate", false);
        let (thread, off) = (process.thread(), &process.header().off);
        begins(thread, CaptureTrigger::Nvtx, b"evaluate", 5);
        assert_eq!((off.load(SeqCst), process.header().captured.load(SeqCst)), (0, 5));
        ends(thread, 6);
        assert_eq!(off.load(SeqCst), 0, "another range has ended");
        ends(thread, 5);
        assert_eq!(off.load(SeqCst), off::SCHEDULE);
    }

    #[test]
    fn ranges_of_another_name_or_kind_open_nothing() {
        let process = capturing(CaptureTrigger::Nvtx, b"evaluate", true);
        let thread = process.thread();
        begins(thread, CaptureTrigger::Nvtx, b"evaluate2", 5);
        begins(thread, CaptureTrigger::Nvtx, b"", 5);
        begins(thread, CaptureTrigger::Range, b"evaluate", 5);
        profiler(thread, true);
        assert_eq!(process.header().off.load(SeqCst), off::SCHEDULE);
        assert_eq!(process.header().captures.load(SeqCst), 0);
    }

    #[test]
    fn a_range_is_captured_once_or_each_time_as_the_run_asks() {
        for (repeats, expected) in [(false, &[1, 0][..]), (true, &[1, 0, 2, 0])] {
            let process = capturing(CaptureTrigger::Range, b"evaluate", repeats);
            for number in [7, 8] {
                begins(process.thread(), CaptureTrigger::Range, b"evaluate", number);
                ends(process.thread(), number);
            }
            let all = process.of_kind(process.thread(), ExtKind::Switched);
            let cycles: Vec<_> = all.iter().map(|record| record.argument()).collect();
            assert_eq!(cycles, expected);
        }
    }

    #[test]
    fn a_range_within_the_captured_one_neither_opens_nor_closes_it() {
        let process = capturing(CaptureTrigger::Range, b"evaluate", true);
        let (thread, header) = (process.thread(), process.header());
        begins(thread, CaptureTrigger::Range, b"evaluate", 7);
        begins(thread, CaptureTrigger::Range, b"evaluate", 8);
        ends(thread, 8);
        assert_eq!((header.off.load(SeqCst), header.captures.load(SeqCst)), (0, 1));
    }

    #[test]
    fn the_profilers_calls_capture_only_if_the_run_asks_for_them() {
        let process = capturing(CaptureTrigger::CudaProfiler, b"", true);
        let (thread, off) = (process.thread(), &process.header().off);
        profiler(thread, false);
        assert_eq!(off.load(SeqCst), off::SCHEDULE);
        profiler(thread, true);
        assert_eq!(off.load(SeqCst), 0);
        profiler(thread, false);
        assert_eq!(off.load(SeqCst), off::SCHEDULE);
        assert!(!is_opened_by(CaptureTrigger::Range));
    }
}
