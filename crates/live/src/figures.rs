//! Adds up the figures of a rank's steps, which the collector writes for the whole job, for programs
//! that watch jobs.
//!
//! A figure that a row doesn't know adds nothing to its sum, and a figure that no row knows has no
//! value. [`Figure::DeviceSteps`] has the time of just those rows that know what devices did, so a
//! share of it is true.

use std::collections::VecDeque;

use tprof_facts::clock_reasons::REASONS;
use tprof_facts::history::{Energy, lateness, meeting_ns};
use tprof_trace::model::HistoryRow;

/// Time before a rank's newest row in which the ranks' waits for each other are compared, ns.
const COMPARED_NS: u64 = 60_000_000_000;
/// Largest number of rows that are compared.
const MOST_COMPARED: usize = 256;

/// A figure of a rank: a sum over its rows so far, or a value of its newest row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Figure {
    Steps,
    DeviceSteps,
    Busy,
    Compute,
    Communication,
    Exposed,
    Copied,
    Collectives,
    CollectiveBytes,
    CollectiveTime,
    Cpu,
    Read,
    Written,
    StorageRead,
    StorageWritten,
    Energy,
    Throttled,
    Median,
    Longest,
    Temperature,
    Clock,
    Late,
}

impl Figure {
    /// All figures in order.
    pub const ALL: [Figure; 22] = [
        Figure::Steps,
        Figure::DeviceSteps,
        Figure::Busy,
        Figure::Compute,
        Figure::Communication,
        Figure::Exposed,
        Figure::Copied,
        Figure::Collectives,
        Figure::CollectiveBytes,
        Figure::CollectiveTime,
        Figure::Cpu,
        Figure::Read,
        Figure::Written,
        Figure::StorageRead,
        Figure::StorageWritten,
        Figure::Energy,
        Figure::Throttled,
        Figure::Median,
        Figure::Longest,
        Figure::Temperature,
        Figure::Clock,
        Figure::Late,
    ];

    /// Returns the name for a scraper: base units, and `_total` at the end of a sum.
    pub fn name(self) -> &'static str {
        match self {
            Figure::Steps => "step_time_seconds_total",
            Figure::DeviceSteps => "gpu_step_time_seconds_total",
            Figure::Busy => "gpu_busy_seconds_total",
            Figure::Compute => "gpu_compute_seconds_total",
            Figure::Communication => "gpu_communication_seconds_total",
            Figure::Exposed => "gpu_exposed_communication_seconds_total",
            Figure::Copied => "gpu_copied_bytes_total",
            Figure::Collectives => "collectives_total",
            Figure::CollectiveBytes => "collective_bytes_total",
            Figure::CollectiveTime => "collective_seconds_total",
            Figure::Cpu => "cpu_seconds_total",
            Figure::Read => "read_bytes_total",
            Figure::Written => "written_bytes_total",
            Figure::StorageRead => "storage_read_bytes_total",
            Figure::StorageWritten => "storage_written_bytes_total",
            Figure::Energy => "gpu_energy_joules_total",
            Figure::Throttled => "cpu_throttled_seconds_total",
            Figure::Median => "step_median_seconds",
            Figure::Longest => "step_longest_seconds",
            Figure::Temperature => "gpu_temperature_celsius",
            Figure::Clock => "gpu_sm_clock_hertz",
            Figure::Late => "late_ratio",
        }
    }

    /// Describes the figure for people.
    pub fn about(self) -> &'static str {
        match self {
            Figure::Steps => "time in training steps",
            Figure::DeviceSteps => {
                "time in training steps, times devices, where the devices' work is known: the whole of the gpu_ times"
            }
            Figure::Busy => "time in steps in which devices ran anything, sum over devices",
            Figure::Compute => "time in steps in which devices computed",
            Figure::Communication => "time in steps in which devices ran kernels that communicate",
            Figure::Exposed => "time in steps in which devices communicated and did not compute",
            Figure::Copied => "bytes of copies and memsets of devices in steps",
            Figure::Collectives => "operations between ranks in steps",
            Figure::CollectiveBytes => "bytes of operations between ranks in steps",
            Figure::CollectiveTime => {
                "time in steps in which the host was in an operation between ranks"
            }
            Figure::Cpu => "CPU time of the processes",
            Figure::Read => "bytes that the processes read by calls",
            Figure::Written => "bytes that the processes wrote by calls",
            Figure::StorageRead => "bytes read from storage for the processes",
            Figure::StorageWritten => "bytes written to storage for the processes",
            Figure::Energy => {
                "energy of the devices, sum over devices: by their own counters, or else mean power readings by time"
            }
            Figure::Throttled => {
                "time for which the CPU limit of the cgroup stopped its tasks, sum over tasks"
            }
            Figure::Median => "median of the newest steps, a second or one step",
            Figure::Longest => "longest of the newest steps",
            Figure::Temperature => "highest temperature of a device in the newest steps",
            Figure::Clock => {
                "mean clock of the multiprocessors, of the slowest device, in the newest steps"
            }
            Figure::Late => {
                "share of the steps of a minute by which the others are longer in operations between ranks than this rank: they wait for it"
            }
        }
    }

    /// Whether it is a sum that only grows.
    pub fn is_sum(self) -> bool {
        (self as u8) < Figure::Median as u8
    }

    /// Returns the figure of one row; `None` if the row doesn't know it.
    fn of(self, row: &HistoryRow) -> Option<f64> {
        let seconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9);
        let of_steps = |ns: u64| seconds((row.steps > 0).then_some(ns));
        let number = |value: Option<u64>| value.map(|value| value as f64);
        match self {
            Figure::Steps => of_steps(row.steps_ns),
            Figure::DeviceSteps => {
                let devices = row.devices.filter(|_| row.busy_ns.is_some())?;
                seconds(Some(row.steps_ns)).map(|time| time * f64::from(devices))
            }
            Figure::Busy => seconds(row.busy_ns),
            Figure::Compute => seconds(row.compute_ns),
            Figure::Communication => seconds(row.communication_ns),
            Figure::Exposed => seconds(row.exposed_communication_ns),
            Figure::Copied => number(row.copied_bytes),
            Figure::Collectives => number(row.collectives),
            Figure::CollectiveBytes => number(row.collective_bytes),
            Figure::CollectiveTime => seconds(row.collective_ns),
            Figure::Cpu => seconds(row.cpu_ns),
            Figure::Read => number(row.read_bytes),
            Figure::Written => number(row.written_bytes),
            Figure::StorageRead => number(row.storage_read_bytes),
            Figure::StorageWritten => number(row.storage_written_bytes),
            Figure::Energy => Energy::of(row).map(|energy| energy.joules),
            Figure::Throttled => seconds(row.throttled_ns),
            Figure::Median => of_steps(row.median_ns),
            Figure::Longest => of_steps(row.longest_ns),
            Figure::Temperature => number(row.temperature_celsius),
            Figure::Clock => number(row.sm_clock_hz),
            // The ranks are compared.
            Figure::Late => None,
        }
    }
}

/// Describes the times of [`RankFigures::limited`] for people.
pub const LIMITED: &str =
    "time of steps in which a device's clocks were low for this reason, a second or one step whole";

/// The figures of a rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankFigures {
    values: [Option<f64>; Figure::ALL.len()],
    /// Time in which the clocks of a device were low, by [`REASONS`], s; `None` if no reasons were
    /// read.
    limited: Option<[f64; REASONS.len()]>,
    /// The newest rows: end, time in operations between ranks, time of the steps, ns.
    recent: VecDeque<(u64, u64, u64)>,
}

impl RankFigures {
    /// Adds rows, in order of time.
    pub fn add(&mut self, rows: &[HistoryRow]) {
        for row in rows {
            for (value, figure) in self.values.iter_mut().zip(Figure::ALL) {
                let of_row = figure.of(row);
                *value = match (figure.is_sum(), *value, of_row) {
                    (true, Some(sum), Some(more)) => Some(sum + more),
                    (true, sum, None) => sum,
                    (_, _, of_row) => of_row,
                };
            }
            if let Some(bits) = row.throttle_reasons {
                let limited = self.limited.get_or_insert_default();
                let is_set = |(bit, _): &(usize, &mut f64)| bits >> bit & 1 > 0;
                for (_, time) in limited.iter_mut().enumerate().filter(is_set) {
                    *time += row.duration_ns as f64 / 1e9;
                }
            }
            if let Some(meeting_ns) = meeting_ns(row).filter(|_| row.steps > 0) {
                self.recent.push_back((row.end_ns(), meeting_ns, row.steps_ns));
            }
        }
        let newest_ns = self.recent.back().map_or(0, |of| of.0);
        while self.recent.len() > MOST_COMPARED
            || self.recent.front().is_some_and(|of| of.0.saturating_add(COMPARED_NS) < newest_ns)
        {
            self.recent.pop_front();
        }
    }

    /// Returns a figure; `None` if it isn't known.
    pub fn value(&self, figure: Figure) -> Option<f64> {
        self.values[figure as usize]
    }

    /// Returns the reasons that slow work down, each with the time of the rows in which a device's
    /// clocks were low for it, s.
    pub fn limited(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let times = self.limited.iter().flatten();
        REASONS
            .iter()
            .zip(times)
            .filter(|((_, slows), _)| *slows)
            .map(|((name, _), time)| (*name, *time))
    }

    /// Returns the share of the newest steps that the rank was in operations between ranks.
    fn meeting(&self) -> Option<f64> {
        let sum = |of: fn(&(u64, u64, u64)) -> u64| -> f64 {
            self.recent.iter().map(|row| of(row) as f64).sum()
        };
        let steps_ns = sum(|row| row.2);
        (steps_ns > 0.0).then(|| sum(|row| row.1) / steps_ns)
    }

    /// Removes what is only true of a rank that still runs.
    pub fn ended(&mut self) {
        for (value, _) in self.values.iter_mut().zip(Figure::ALL).filter(|(_, of)| !of.is_sum()) {
            *value = None;
        }
        self.recent.clear();
    }
}

/// Compares the ranks of a run: sets [`Figure::Late`] of each.
pub fn compare(ranks: &mut [RankFigures]) {
    let waits: Vec<Option<f64>> = ranks.iter().map(RankFigures::meeting).collect();
    for (rank, late) in ranks.iter_mut().zip(lateness(&waits)) {
        rank.values[Figure::Late as usize] = late;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn row(start_ns: u64) -> HistoryRow {
        HistoryRow {
            start_ns,
            duration_ns: S,
            steps: 2,
            steps_ns: S,
            median_ns: S / 2,
            ..HistoryRow::default()
        }
    }

    #[test]
    fn what_no_row_knows_has_no_value_and_shares_are_of_rows_that_know() {
        let mut rank = RankFigures::default();
        rank.add(&[row(0)]);
        assert_eq!(rank.value(Figure::Steps), Some(1.0));
        assert_eq!((rank.value(Figure::Busy), rank.value(Figure::DeviceSteps)), (None, None));
        assert_eq!(rank.limited().count(), 0);
        let known = HistoryRow {
            devices: Some(2),
            busy_ns: Some(S),
            power_milliwatts: Some(300_000),
            throttle_reasons: Some(0b101),
            ..row(S)
        };
        rank.add(&[known, known, row(2 * S)]);
        assert_eq!(rank.value(Figure::Steps), Some(4.0));
        assert_eq!(rank.value(Figure::DeviceSteps), Some(4.0));
        assert_eq!(
            (rank.value(Figure::Busy), rank.value(Figure::Energy)),
            (Some(2.0), Some(600.0))
        );
        let of: Vec<_> = rank.limited().filter(|(_, seconds)| *seconds > 0.0).collect();
        assert_eq!(of, [("power cap", 2.0)], "to be idle is no slowdown");
        assert_eq!(rank.value(Figure::Temperature), None);
    }

    #[test]
    fn the_late_rank_is_that_of_the_last_minute() {
        let rank = |waits_ns: [u64; 2]| {
            let mut rank = RankFigures::default();
            for (at, waits_ns) in (0..200).map(|at| (at, waits_ns[usize::from(at >= 100)])) {
                rank.add(&[HistoryRow { collective_ns: Some(waits_ns), ..row(at * S) }]);
            }
            rank
        };
        let mut ranks = [rank([S / 2, S / 10]), rank([S / 10, S / 2]), rank([S / 10, S / 2])];
        compare(&mut ranks);
        let late: Vec<_> = ranks.iter().map(|rank| rank.value(Figure::Late).unwrap()).collect();
        assert!((late[0] - 0.4).abs() < 1e-9 && late[1] <= 0.0, "{late:?}");
        ranks.iter_mut().for_each(RankFigures::ended);
        compare(&mut ranks);
        assert_eq!(ranks[0].value(Figure::Late), None);
        assert_eq!(ranks[0].value(Figure::Steps), Some(200.0));
    }
}
