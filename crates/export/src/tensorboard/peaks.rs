//! Finds the peak memory of each step: of the heap, of resident memory, and on devices.

use std::collections::BTreeMap;
use std::convert::Infallible;

use tprof_facts::Step;
use tprof_trace::model::{DeviceAllocation, MemoryRecording, ProcessIndex};

use crate::{OpenRank, counters};

/// The highest value of each step, in the order of steps.
pub(super) struct StepPeaks<'a> {
    steps: &'a [Step],
    /// Whether a value is valid until the next one, because every change was recorded. Otherwise
    /// values are single readings.
    holds: bool,
    held: Option<u64>,
    /// Index of the step that contains the last value, or of the next step.
    at: usize,
    peaks: Vec<Option<u64>>,
}

impl<'a> StepPeaks<'a> {
    /// Creates an empty list of peaks for steps that are in order of time and do not overlap.
    pub fn new(steps: &'a [Step], holds: bool) -> StepPeaks<'a> {
        StepPeaks { steps, holds, held: None, at: 0, peaks: vec![None; steps.len()] }
    }

    /// Adds a value. Times must not decrease.
    pub fn take(&mut self, time_ns: u64, value: u64) {
        self.hold_until(time_ns);
        if let Some(step) = self.steps.get(self.at)
            && step.start_ns <= time_ns
        {
            self.peaks[self.at] = self.peaks[self.at].max(Some(value));
        }
        self.held = Some(value).filter(|_| self.holds);
    }

    /// Returns the index and the highest value of each step that has a value.
    pub fn finish(mut self) -> impl Iterator<Item = (usize, u64)> {
        self.hold_until(u64::MAX);
        let known = self.peaks.into_iter().enumerate();
        known.filter_map(|(place, peak)| Some((place, peak?)))
    }

    /// Advances to the step that contains a moment. The held value counts for each step on the way
    /// that begins before the moment.
    fn hold_until(&mut self, time_ns: u64) {
        while let Some(step) = self.steps.get(self.at) {
            if step.start_ns < time_ns {
                self.peaks[self.at] = self.peaks[self.at].max(self.held);
            }
            if time_ns < step.end_ns {
                break;
            }
            self.at += 1;
        }
    }
}

/// Returns the highest live heap bytes of a process in each step. Under `--mem sampled`, the heap
/// is read only from time to time, so a step without a reading has no value.
pub(super) fn heap(
    part: &OpenRank<'_>,
    process: ProcessIndex,
    steps: &[Step],
) -> Vec<(usize, u64)> {
    let row = part.trace.process(process);
    let exact = row.is_none_or(|row| row.memory == MemoryRecording::Exact);
    let mut peaks = StepPeaks::new(steps, exact);
    // With a stretch of 0 ns, no points are merged.
    let read: Result<(), Infallible> = counters::heap(&part.trace, 0, |of, time_ns, bytes| {
        if of == process {
            peaks.take(time_ns, bytes);
        }
        Ok(())
    });
    read.unwrap_or_else(|never| match never {});
    peaks.finish().collect()
}

/// Returns the highest number of bytes in use on each device of a process in each step, as the
/// framework's allocator counted them.
pub(super) fn devices(
    part: &OpenRank<'_>,
    process: ProcessIndex,
    steps: &[Step],
) -> BTreeMap<u32, Vec<(usize, u64)>> {
    let mut of: BTreeMap<u32, StepPeaks<'_>> = BTreeMap::new();
    for row in part.trace.in_order::<DeviceAllocation>(0, u64::MAX).flatten() {
        if let (Some(device), Some(bytes)) = (row.device, row.total_allocated_bytes)
            && row.process == process
        {
            of.entry(device)
                .or_insert_with(|| StepPeaks::new(steps, true))
                .take(row.time_ns, bytes);
        }
    }
    of.into_iter().map(|(device, peaks)| (device, peaks.finish().collect())).collect()
}

/// Returns the highest of a counter's readings in each step.
pub(super) fn readings(readings: &[(u64, f64)], steps: &[Step]) -> Vec<(usize, u64)> {
    let mut peaks = StepPeaks::new(steps, false);
    readings.iter().for_each(|(time_ns, value)| peaks.take(*time_ns, value.max(0.0) as u64));
    peaks.finish().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(times: &[(u64, u64)]) -> Vec<Step> {
        let step = |(start_ns, end_ns)| Step { start_ns, end_ns, process: 0, number: start_ns };
        times.iter().copied().map(step).collect()
    }

    fn peaks(values: &[(u64, u64)], holds: bool) -> Vec<(usize, u64)> {
        let steps = steps(&[(10, 20), (20, 30), (40, 50), (60, 70)]);
        let mut peaks = StepPeaks::new(&steps, holds);
        values.iter().for_each(|(time, value)| peaks.take(*time, *value));
        peaks.finish().collect()
    }

    #[test]
    fn a_value_counts_for_each_step_until_it_changes() {
        let values = [(5, 9), (12, 4), (19, 7), (20, 3), (35, 100), (38, 8), (45, 2)];
        assert_eq!(peaks(&values, true), [(0, 9), (1, 3), (2, 8), (3, 2)]);
        assert_eq!(peaks(&[], true), []);
    }

    #[test]
    fn readings_count_in_the_step_in_which_they_were_made() {
        let values = [(5, 9), (12, 4), (19, 7), (20, 3), (35, 100), (38, 8), (45, 2)];
        assert_eq!(peaks(&values, false), [(0, 7), (1, 3), (2, 2)]);
    }
}
