//! Computes statistics of a quantity's readings over time.

use std::collections::BTreeMap;

use tprof_rank::base::intervals::{Cover, Interval};

/// Readings by time, ns.
pub(crate) type SampleSeries = BTreeMap<u64, f64>;

/// Statistics of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SeriesStats {
    pub(super) mean: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// Returns each value with the time until the next reading, during which the value was valid.
/// Leaves out the last value, values whose next reading comes after more than `most_ns`, and those
/// that aren't numbers: nothing is known until the next reading.
fn held(series: &SampleSeries, most_ns: u64) -> impl Iterator<Item = (Interval, f64)> + '_ {
    let next = series.keys().skip(1);
    series.iter().zip(next).filter_map(move |((at, value), next)| {
        (next - at <= most_ns && !value.is_nan()).then_some((Interval::new(*at, *next), *value))
    })
}

/// Returns the samples that a series of means is of: a mean that didn't change is written less often
/// than it is read, once per `every_ns` of its time.
pub(super) fn samples(
    series: &SampleSeries,
    most_ns: u64,
    every_ns: impl Fn(u64) -> u64,
) -> impl Iterator<Item = (Interval, f64)> + '_ {
    let all: Vec<_> = held(series, most_ns).collect();
    let counted: Vec<_> = all
        .into_iter()
        .map(|(interval, value)| (interval, value, every_ns(interval.start).max(1)))
        .collect();
    counted.into_iter().flat_map(move |(interval, value, every_ns)| {
        let count = (interval.length() as f64 / every_ns as f64).round().max(1.0) as u64;
        let at = move |place: u64| interval.start + interval.length() * place / count;
        (0..count).map(move |place| (Interval::new(at(place), at(place + 1)), value))
    })
}

/// Returns the sum over a part of the time of each value by the time for which it was valid, ns, and
/// that time.
pub(super) fn area(series: &SampleSeries, most_ns: u64, part: &Cover) -> (f64, u64) {
    held(series, most_ns).fold((0.0, 0), |(area, time_ns), (interval, value)| {
        let inside_ns = part.length_within(interval);
        (area + value * inside_ns as f64, time_ns + inside_ns)
    })
}

/// Returns by how much a counter has grown in a part of the time, and in how much of it that is known,
/// ns. Between two readings it grows evenly. If it falls, it was reset, which hides what it was.
pub(super) fn grown(series: &SampleSeries, part: &Cover) -> (f64, u64) {
    let next = series.iter().skip(1);
    let pairs = series.iter().zip(next).filter(|(now, next)| next.1 >= now.1);
    pairs.fold((0.0, 0), |(sum, time_ns), ((at, value), (until, later))| {
        let interval = Interval::new(*at, *until);
        let inside_ns = part.length_within(interval);
        let share = inside_ns as f64 / interval.length().max(1) as f64;
        (sum + (later - value) * share, time_ns + inside_ns)
    })
}

pub(super) fn sums(series: &SampleSeries, most_ns: u64) -> Option<SeriesStats> {
    let last = *series.values().rfind(|value| !value.is_nan())?;
    let (mut area, mut time) = (0.0, 0.0);
    for (held, value) in held(series, most_ns) {
        area += held.length() as f64 * value;
        time += held.length() as f64;
    }
    let fold = |of: fn(f64, f64) -> f64| series.values().copied().fold(last, of);
    Some(SeriesStats {
        mean: if time > 0.0 { area / time } else { last },
        min: fold(f64::min),
        max: fold(f64::max),
    })
}

/// Returns the share of the time in which any of these bits was set.
pub(super) fn share(series: &SampleSeries, most_ns: u64, bits: u64) -> Option<f64> {
    let set = |value: f64| value as u64 & bits != 0;
    let last = *series.values().last()?;
    let (all, with) = held(series, most_ns).fold((0, 0), |(all, with), (held, value)| {
        (all + held.length(), with + if set(value) { held.length() } else { 0 })
    });
    Some(if all > 0 { with as f64 / all as f64 } else { f64::from(u8::from(set(last))) })
}

#[cfg(test)]
mod tests {
    use tprof_facts::clock_reasons::slowing;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_value_is_valid_until_the_next_reading_but_not_over_a_gap() {
        // The device has no reading between seconds 2 and 60.
        let series: SampleSeries =
            [(0, 10.0), (SECOND, 30.0), (2 * SECOND, 90.0), (60 * SECOND, 0.0)].into();
        let found = sums(&series, 5 * SECOND).unwrap();
        assert_eq!(found, SeriesStats { mean: 20.0, min: 0.0, max: 90.0 });
        assert_eq!(sums(&[(5, 7.0)].into(), SECOND).unwrap().mean, 7.0);
        assert_eq!(sums(&SampleSeries::new(), SECOND), None);
    }

    #[test]
    fn only_power_and_heat_slow_work() {
        let series: SampleSeries =
            [(0, 1.0), (SECOND, f64::from(0x4 | 0x40)), (2 * SECOND, 2.0), (4 * SECOND, 1.0)]
                .into();
        assert_eq!(share(&series, 2 * SECOND, slowing()), Some(0.25));
        assert_eq!(share(&series, 2 * SECOND, 0x40), Some(0.25));
        assert_eq!(share(&series, 2 * SECOND, 0x2), Some(0.5));
        assert_eq!(share(&[(1, 8.0)].into(), SECOND, slowing()), Some(1.0));
        assert_eq!(slowing(), 0xec);
    }
}
