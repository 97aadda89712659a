//! Sums quantities that are sampled for each process (RSS, mapped bytes, live heap) over a rank.
//!
//! A sample holds until the process's next sample or its end. After its end, a process adds
//! nothing.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_trace::TraceFile;
use tprof_trace::model::ProcessIndex;

use super::curve::{Axis, Curve};

/// The end of each process; a process without a recorded end is absent.
pub(crate) type ProcessEnds = FxHashMap<ProcessIndex, u64>;

/// One sample of one process: time in ns, process, value.
pub(crate) type Sample = (u64, ProcessIndex, u64);

/// The sum of a quantity over the processes of a rank.
pub(crate) struct GaugeSum {
    pub buckets: Vec<Option<u64>>,
    pub highest: u64,
    pub highest_at_ns: u64,
    /// Number of times at which the quantity was read. Its values between them are unknown.
    pub readings: u64,
}

/// Calls `change` with each time at which the sum changes, and the sum from then on.
pub(crate) fn sweep(samples: &mut [Sample], ends: &ProcessEnds, mut change: impl FnMut(u64, u64)) {
    samples.sort_by_key(|sample| sample.0);
    let mut over: Vec<(u64, ProcessIndex)> =
        ends.iter().map(|(process, end_ns)| (*end_ns, *process)).collect();
    over.sort_unstable();
    let mut over = over.into_iter().peekable();
    let mut held: FxHashMap<ProcessIndex, u64> = FxHashMap::default();
    let mut sum = 0u64;
    for &(time_ns, process, value) in &*samples {
        while let Some((end_ns, gone)) = over.next_if(|end| end.0 < time_ns) {
            if let Some(value) = held.remove(&gone) {
                sum = sum.saturating_sub(value);
                change(end_ns.saturating_add(1), sum);
            }
        }
        // The last reading of a process may be later than its end. It must not count: the end was
        // already handled, so the value would stay in the sum.
        if ends.get(&process).is_some_and(|end_ns| *end_ns < time_ns) {
            continue;
        }
        let old = held.insert(process, value).unwrap_or(0);
        sum = sum.saturating_sub(old).saturating_add(value);
        change(time_ns, sum);
    }
    for (end_ns, gone) in over {
        if let Some(value) = held.remove(&gone) {
            sum = sum.saturating_sub(value);
            change(end_ns.saturating_add(1), sum);
        }
    }
}

/// Sums samples on an axis up to `end_ns`; `None` if there are no samples.
pub(crate) fn sum(
    mut samples: Vec<Sample>,
    ends: &ProcessEnds,
    axis: Axis,
    end_ns: u64,
) -> Option<GaugeSum> {
    if samples.is_empty() {
        return None;
    }
    let mut curve = Curve::new(axis);
    let (mut highest, mut highest_at_ns) = (0, 0);
    let lived = |sample: &&Sample| ends.get(&sample.1).is_none_or(|end_ns| sample.0 <= *end_ns);
    let readings = moments(samples.iter().filter(lived).map(|sample| sample.0));
    sweep(&mut samples, ends, |time_ns, value| {
        curve.set(time_ns, value);
        if value > highest {
            (highest, highest_at_ns) = (value, time_ns);
        }
    });
    curve.extend_to(end_ns);
    Some(GaugeSum { buckets: curve.buckets(), highest, highest_at_ns, readings })
}

/// Number of different times among these.
pub(crate) fn moments(times: impl Iterator<Item = u64>) -> u64 {
    times.collect::<FxHashSet<u64>>().len() as u64
}

/// The start and the end of the part of a file that is read.
pub(crate) fn part_of(file: &TraceFile) -> (u64, u64) {
    let Some(part) = file.part() else { return (0, u64::MAX) };
    let from_ns = part.recorded_ns.iter().map(|(from, _)| *from).min();
    let to_ns = part.recorded_ns.iter().map(|(_, to)| *to).max();
    (from_ns.unwrap_or(u64::MAX), to_ns.unwrap_or(u64::MAX))
}

/// Returns the samples in the part of a file that is read, in order of time. At the start of the
/// part, each process gets a sample with the last value before it.
pub(crate) fn in_part(file: &TraceFile, samples: Vec<Sample>) -> Vec<Sample> {
    let (from_ns, to_ns) = part_of(file);
    if from_ns == u64::MAX {
        return Vec::new();
    }
    let mut held: FxHashMap<ProcessIndex, u64> = FxHashMap::default();
    let mut within: Vec<Sample> = Vec::new();
    for (time_ns, process, value) in samples {
        match time_ns <= from_ns {
            true => drop(held.insert(process, value)),
            false if time_ns < to_ns => within.push((time_ns, process, value)),
            false => {}
        }
    }
    let mut all: Vec<Sample> =
        held.into_iter().map(|(process, value)| (from_ns, process, value)).collect();
    all.sort_unstable();
    all.append(&mut within);
    all
}

/// Returns the samples of a counter of the rank's processes.
pub(crate) fn process_samples(file: &TraceFile, name: &str) -> Vec<Sample> {
    (file.counters().iter())
        .filter(|counter| file.name(counter.name) == name)
        .filter_map(|counter| Some((counter.time_ns, counter.process?, whole(counter.value))))
        .collect()
}

/// Returns the samples of a counter of the host or its cgroup, in order of time.
pub(crate) fn host_samples(file: &TraceFile, name: &str) -> Vec<Sample> {
    let mut samples: Vec<Sample> = (file.counters().iter())
        .filter(|counter| counter.process.is_none() && file.name(counter.name) == name)
        .map(|counter| (counter.time_ns, 0, whole(counter.value)))
        .collect();
    samples.sort_by_key(|sample| sample.0);
    samples
}

/// Converts a counter's floating-point value. The counters that are read here are whole numbers and
/// not negative.
fn whole(value: f64) -> u64 {
    value.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_after_a_process_ended_are_not_counted() {
        let samples = vec![(10, 0, 5), (10, 1, 7), (40, 1, 3), (60, 0, 9)];
        let axis = Axis { start_ns: 0, bucket_ns: 10 };
        let sum = sum(samples, &ProcessEnds::from_iter([(0, 30)]), axis, 100).unwrap();
        assert_eq!((sum.highest, sum.readings), (12, 2));
    }

    #[test]
    fn a_process_counts_from_its_first_sample_to_its_end() {
        let mut samples = vec![(10, 0, 5), (20, 1, 7), (40, 1, 3), (60, 0, 9)];
        let mut seen = Vec::new();
        sweep(&mut samples, &ProcessEnds::from_iter([(0, 30)]), |time, sum| seen.push((time, sum)));
        assert_eq!(seen, [(10, 5), (20, 12), (31, 7), (40, 3)]);
    }
}
