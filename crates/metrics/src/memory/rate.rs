//! Computes the rate at which a rank allocated in a part of its life, from the counters that its
//! processes keep.

use rustc_hash::FxHashMap;
use tprof_rank::base::intervals::Interval;
use tprof_trace::TraceFile;
use tprof_trace::model::{HeapTotals, ProcessIndex};

use crate::host::paused::paused;

/// Rates of allocation. They are estimates: counters are read a few times a second, and are taken
/// to rise evenly between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Allocations per second of all processes.
    pub allocations_per_s: f64,
    /// Requested bytes per second.
    pub bytes_per_s: f64,
}

/// Returns the rates in a part of a rank's life, without the time in which recording was off.
/// Returns `None` if there are no counters, or if only a part of the file is read, since the first
/// values of the counters are from before that part.
pub fn rate(file: &TraceFile, within: Interval) -> Option<Rate> {
    if file.totals().is_empty() || file.part().is_some() {
        return None;
    }
    let seconds = within.length().saturating_sub(paused(file).length_within(within)) as f64 / 1e9;
    if seconds == 0.0 {
        return None;
    }
    let mut rows: FxHashMap<ProcessIndex, Vec<&HeapTotals>> = FxHashMap::default();
    for row in file.totals() {
        rows.entry(row.process).or_default().push(row);
    }
    let start_of = |process: ProcessIndex| file.process(process).map_or(0, |one| one.start_ns);
    let rate = |count: fn(&HeapTotals) -> u64| {
        let rises = rows.iter().map(|(process, rows)| {
            let points = rows.iter().map(|row| (row.time_ns, count(row)));
            let points: Vec<(u64, u64)> =
                std::iter::once((start_of(*process), 0)).chain(points).collect();
            value_at(&points, within.end) - value_at(&points, within.start)
        });
        rises.sum::<f64>() / seconds
    };
    Some(Rate {
        allocations_per_s: rate(|row| row.allocations),
        bytes_per_s: rate(|row| row.allocated_bytes),
    })
}

/// Interpolates a counter at a time between the readings around it. `points` are in order of time.
fn value_at(points: &[(u64, u64)], at_ns: u64) -> f64 {
    let after = points.partition_point(|point| point.0 <= at_ns);
    let Some(before) = after.checked_sub(1).map(|before| points[before]) else {
        return points.first().map_or(0.0, |point| point.1 as f64);
    };
    let Some(&next) = points.get(after) else { return before.1 as f64 };
    let part = (at_ns - before.0) as f64 / (next.0 - before.0) as f64;
    before.1 as f64 + part * next.1.saturating_sub(before.1) as f64
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;

    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_rate_leaves_out_allocations_before_and_after() {
        let mut made = Fixture::new();
        for (time_ns, allocations) in [(S, 1_000_000), (3 * S, 1_000_200), (4 * S, 9_000_000)] {
            let allocated_bytes = allocations * 16;
            let row = HeapTotals { time_ns, allocations, allocated_bytes, ..Default::default() };
            made.writer.totals(row);
        }
        let file = made.finish();
        let of = |start, end| rate(&file, Interval::new(start, end));
        let is = |rate: f64| Some(Rate { allocations_per_s: rate, bytes_per_s: 16.0 * rate });
        assert_eq!(of(S, 3 * S), is(100.0));
        assert_eq!(of(2 * S, 3 * S), is(100.0));
        assert_eq!(of(5 * S, 6 * S), is(0.0));
        assert_eq!(of(S, S), None);
    }

    #[test]
    fn without_counters_there_is_no_rate() {
        assert_eq!(rate(&Fixture::new().finish(), Interval::new(0, S)), None);
    }
}
