//! Computes statistics of quantities that are read from time to time: memory, queue lengths,
//! clocks, power.

use std::collections::{BTreeMap, BTreeSet};

use tprof_rank::{Step, step_at};
use tprof_trace::TraceFile;
use tprof_trace::model::ProcessIndex;

/// Statistics of one counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gauge {
    /// Number of readings.
    pub samples: u64,
    /// The lowest value that was read.
    pub min: f64,
    /// The highest value that was read.
    pub max: f64,
    /// The last value that was read.
    pub last: f64,
    /// Mean over time, where each value holds until the next; for a single reading, its value.
    pub mean: f64,
}

/// The counter's name, process and device.
pub type GaugeKey = (String, Option<u32>, Option<u32>);

/// The readings of a file's counters, in order of time.
pub(super) struct CounterValues {
    of: BTreeMap<GaugeKey, Vec<CounterValue>>,
    /// For each counter, the number of values that are infinite or not a number. These are left
    /// out.
    not_finite: BTreeMap<GaugeKey, u64>,
}

/// A value and the time at which it was read.
struct CounterValue {
    time_ns: u64,
    value: f64,
    /// The process, if the counter belongs to one.
    process: Option<ProcessIndex>,
}

impl CounterValues {
    /// Reads the counters of a file.
    pub(super) fn of(file: &TraceFile) -> CounterValues {
        let mut series: BTreeMap<GaugeKey, Vec<CounterValue>> = BTreeMap::new();
        let mut not_finite: BTreeMap<GaugeKey, u64> = BTreeMap::new();
        for row in file.counters().iter().filter(|row| file.holds(row.time_ns)) {
            let pid = row.process.map(|of| file.process(of).map_or(of, |process| process.pid));
            let key = (file.name(row.name).to_owned(), pid, row.device);
            if !row.value.is_finite() {
                *not_finite.entry(key).or_default() += 1;
                continue;
            }
            let (time_ns, value, process) = (row.time_ns, row.value, row.process);
            series.entry(key).or_default().push(CounterValue { time_ns, value, process });
        }
        CounterValues { of: series, not_finite }
    }

    /// Returns for each counter the number of readings that are infinite or not a number.
    pub(super) fn not_finite(&self) -> &BTreeMap<GaugeKey, u64> {
        &self.not_finite
    }

    /// Returns statistics of each counter.
    pub(super) fn gauges(&self) -> BTreeMap<GaugeKey, Gauge> {
        let of = |readings: &Vec<CounterValue>| gauge(readings, None);
        self.of.iter().filter_map(|(key, readings)| Some((key.clone(), of(readings)?))).collect()
    }

    /// Returns statistics of each counter in each step in which it was read, by the step's number.
    pub(super) fn by_step(&self, steps: &[Step]) -> BTreeMap<(GaugeKey, u64), Gauge> {
        let owners: BTreeSet<ProcessIndex> = steps.iter().map(|step| step.process).collect();
        let only = owners.first().filter(|_| owners.len() == 1).copied();
        let step_of = |reading: &CounterValue| {
            let owner = reading.process.filter(|process| owners.contains(process)).or(only)?;
            steps.get(step_at(steps, owner, reading.time_ns)? as usize)
        };
        let mut found = BTreeMap::new();
        for (key, readings) in &self.of {
            let in_step = readings.chunk_by(|a, b| step_of(a) == step_of(b));
            for readings in in_step {
                if let Some(step) = readings.first().and_then(step_of)
                    && let Some(gauge) = gauge(readings, Some(step.interval.end))
                {
                    found.insert((key.clone(), step.number), gauge);
                }
            }
        }
        found
    }
}

/// Returns statistics of readings, which are in order of time; `None` if there are none. The last
/// reading holds until `end_ns`.
fn gauge(readings: &[CounterValue], end_ns: Option<u64>) -> Option<Gauge> {
    let (first, last) = (readings.first()?, readings.last()?);
    let lasted = |pair: &[CounterValue]| pair[0].value * (pair[1].time_ns - pair[0].time_ns) as f64;
    let end_ns = end_ns.unwrap_or(last.time_ns).max(last.time_ns);
    let area: f64 = readings.windows(2).map(lasted).sum();
    let area = area + last.value * (end_ns - last.time_ns) as f64;
    let time = (end_ns - first.time_ns) as f64;
    let fold = |of: fn(f64, f64) -> f64| readings.iter().map(|row| row.value).fold(first.value, of);
    Some(Gauge {
        samples: readings.len() as u64,
        min: fold(f64::min),
        max: fold(f64::max),
        last: last.value,
        mean: if time > 0.0 { area / time } else { last.value },
    })
}

#[cfg(test)]
mod tests {
    use tprof_rank::base::intervals::Interval;

    use super::*;

    fn readings(values: &[(u64, f64)]) -> Vec<CounterValue> {
        let reading = |(time_ns, value)| CounterValue { time_ns, value, process: Some(3) };
        values.iter().copied().map(reading).collect()
    }

    #[test]
    fn a_value_holds_until_the_next() {
        let gauge = |values: &[(u64, f64)]| gauge(&readings(values), None);
        let of_three = gauge(&[(0, 10.0), (10, 30.0), (40, 0.0)]).unwrap();
        let spread = (of_three.samples, of_three.min, of_three.max, of_three.last);
        assert_eq!(spread, (3, 0.0, 30.0, 0.0));
        assert_eq!(of_three.mean, (10.0 * 10.0 + 30.0 * 30.0) / 40.0);
        assert_eq!(gauge(&[(5, 7.0)]).unwrap().mean, 7.0);
        assert_eq!(gauge(&[]), None);
    }

    #[test]
    fn a_steps_statistics_are_of_the_readings_within_it() {
        let key = ("queue".to_owned(), Some(70), None);
        let values = [(5, 1.0), (110, 10.0), (150, 30.0), (350, 5.0)];
        let of = [(key.clone(), readings(&values))].into();
        let all = CounterValues { of, not_finite: BTreeMap::new() };
        let step = |number, from, to| Step::on_host(number, 3, Interval::new(from, to));
        let steps = [step(7, 100, 200), step(8, 200, 300), step(9, 300, 400)];
        let found = all.by_step(&steps);
        assert_eq!(found.len(), 2, "{found:?}");
        let of_seven = &found[&(key.clone(), 7)];
        assert_eq!((of_seven.samples, of_seven.min, of_seven.last), (2, 10.0, 30.0));
        assert_eq!(of_seven.mean, (10.0 * 40.0 + 30.0 * 50.0) / 90.0);
        assert_eq!(found[&(key, 9)].mean, 5.0);
        let others = steps.map(|step| Step { process: 4, ..step });
        assert_eq!(all.by_step(&[others[0], steps[1]]).len(), 0);
    }
}
