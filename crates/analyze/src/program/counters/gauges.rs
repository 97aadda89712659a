//! Quantities that were read now and then: memory, queue lengths, clocks, power.

use std::collections::BTreeMap;

use tprof_trace::TraceFile;

/// What a counter did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gauge {
    /// How often it was read.
    pub samples: u64,
    /// Lowest value.
    pub min: f64,
    /// Highest value.
    pub max: f64,
    /// Last value.
    pub last: f64,
    /// Mean over time, a value holding until the next; of a single reading, itself.
    pub mean: f64,
}

/// The counter's name, process and device.
pub type GaugeKey = (String, Option<u32>, Option<u32>);

/// Counters of a file. What is no number is left out.
pub(super) fn gauges(file: &TraceFile) -> BTreeMap<GaugeKey, Gauge> {
    let mut series: BTreeMap<GaugeKey, Vec<(u64, f64)>> = BTreeMap::new();
    let read = file.counters().iter().filter(|row| row.value.is_finite());
    for row in read.filter(|row| file.holds(row.time_ns)) {
        let pid = row.process.map(|process| {
            file.processes()
                .iter()
                .find(|row| row.process == process)
                .map_or(process, |row| row.pid)
        });
        let key = (file.name(row.name).to_owned(), pid, row.device);
        series.entry(key).or_default().push((row.time_ns, row.value));
    }
    series.into_iter().filter_map(|(key, values)| Some((key, gauge(&values)?))).collect()
}

/// Of readings in order of time.
fn gauge(values: &[(u64, f64)]) -> Option<Gauge> {
    let (&(first_ns, first), &(last_ns, last)) = (values.first()?, values.last()?);
    let area: f64 = values.windows(2).map(|pair| pair[0].1 * (pair[1].0 - pair[0].0) as f64).sum();
    let time = (last_ns - first_ns) as f64;
    let fold = |start: f64, of: fn(f64, f64) -> f64| values.iter().map(|row| row.1).fold(start, of);
    Some(Gauge {
        samples: values.len() as u64,
        min: fold(first, f64::min),
        max: fold(first, f64::max),
        last,
        mean: if time > 0.0 { area / time } else { last },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_holds_until_the_next() {
        let gauge = gauge(&[(0, 10.0), (10, 30.0), (40, 0.0)]).unwrap();
        assert_eq!((gauge.samples, gauge.min, gauge.max, gauge.last), (3, 0.0, 30.0, 0.0));
        assert_eq!(gauge.mean, (10.0 * 10.0 + 30.0 * 30.0) / 40.0);
        assert_eq!(super::gauge(&[(5, 7.0)]).unwrap().mean, 7.0);
        assert_eq!(super::gauge(&[]), None);
    }
}
