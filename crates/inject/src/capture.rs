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
