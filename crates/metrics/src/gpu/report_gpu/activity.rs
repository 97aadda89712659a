//! Finds what the units of a device did within a part of the time, and the energy that it took.
//!
//! A mean belongs to a sample, which is a stretch of time. Only samples that lie within the part
//! count: what a sample that crosses its border was like inside is unknown.

use std::collections::BTreeMap;

use serde_json::Value;
use tprof_facts::history::Energy;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_trace::TraceFile;
use tprof_trace::model::counter::*;

use super::samples::{FileSamples, holds_ns, means, means_every_ns};
use super::series::{SampleSeries, area, grown, samples};

const NO_SAMPLE: &str = "the samples lie outside of this time, or cross its borders";
const NOT_COUNTED: &str = "the GPU's counters were not sampled (--gpu-metrics)";
const NOT_READ: &str = "this recording is of a tprof that did not read it";

/// The readings of one device.
#[derive(Clone, Copy)]
pub(crate) struct DeviceReadings<'a> {
    pub(crate) series: &'a BTreeMap<(u32, &'static str), SampleSeries>,
    /// What the library said of all devices of the host, and of this one.
    pub(crate) host_facts: &'a Value,
    pub(crate) facts: &'a Value,
    /// What the process that samples counters said of this device, if there was one.
    pub(crate) metrics: Option<DeviceMetrics<'a>>,
}

/// What the process that samples counters (`--gpu-metrics`) said of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceMetrics<'a> {
    facts: &'a Value,
    /// Time between two samples, ns.
    pub(crate) interval_ns: u64,
}

impl<'a> DeviceMetrics<'a> {
    /// Finds a device in what the processes of a host said. If several tried, the one that sampled
    /// it counts.
    pub(super) fn of(said: &[&'a Value], uuid: &str) -> Option<DeviceMetrics<'a>> {
        let mut found: Option<DeviceMetrics<'a>> = None;
        for all in said {
            let devices = all["devices"].as_array().into_iter().flatten();
            for facts in devices.filter(|facts| facts["device"] == uuid) {
                if found.is_none_or(|known| known.facts["metrics"].is_null()) {
                    let interval_ns = all["interval_ns"].as_u64().unwrap_or(0);
                    found = Some(DeviceMetrics { facts, interval_ns });
                }
            }
        }
        found
    }

    /// Why the device isn't sampled, or no longer was.
    pub(super) fn why_not(&self) -> Option<&'a str> {
        self.facts["why_not"].as_str()
    }

    /// Returns a number that was said.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.facts[key].as_u64()
    }

    /// Returns a text that was said.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.facts[key].as_str()
    }

    /// The counters that are not sampled, each with the reason.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let all = self.facts["missing"].as_object().into_iter().flatten();
        all.filter_map(|(name, why)| Some((name.as_str(), why.as_str()?)))
    }

    /// Time by which a sample's place in the run may be off, ns.
    pub(crate) fn uncertain_ns(&self) -> u64 {
        self.number("clock_width_ns").unwrap_or(0)
    }

    /// Whether there are samples of the device.
    pub(crate) fn has_samples(&self) -> bool {
        self.number("since_ns").is_some()
    }

    /// UUID of the device.
    pub(crate) fn device(&self) -> &'a str {
        self.text("device").unwrap_or_default()
    }

    /// Whether samples tell this counter at a time.
    pub(crate) fn tells(&self, name: &str, time_ns: u64) -> bool {
        let within = |key: &str| self.number(key);
        let is_sampled = within("since_ns").is_some_and(|since| time_ns >= since)
            && within("until_ns").is_some_and(|until| time_ns < until);
        is_sampled && self.facts["metrics"][name].is_string()
    }
}

/// What the units of a device did in a part of the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activity {
    /// Length of the part, ns.
    pub(crate) window_ns: u64,
    /// Time of the samples that lie within it, ns.
    pub(crate) sampled_ns: u64,
    /// The mean of each quantity over these samples, or why there is none, by counter.
    pub(crate) means: BTreeMap<&'static str, Result<f64, String>>,
    /// The energy that the device took, and in how much of the part that is known, ns; or why it
    /// isn't.
    pub(crate) energy: Option<(Energy, u64)>,
    pub(crate) no_energy: String,
}

impl<'a> DeviceReadings<'a> {
    /// Returns the readings of a device that the processes of a file know by this number.
    pub(crate) fn of_rank(
        file: &TraceFile,
        read: &'a FileSamples,
        device: Option<u32>,
    ) -> Option<DeviceReadings<'a>> {
        let host_facts = read.facts.as_ref()?;
        let uuid = uuid_of(file, device?)?;
        let known = host_facts["devices"].as_array()?;
        let facts = known.iter().find(|facts| facts["uuid"] == *uuid)?;
        let said: Vec<&Value> = read.metrics.iter().collect();
        let metrics = DeviceMetrics::of(&said, uuid);
        Some(DeviceReadings { series: &read.series, host_facts, facts, metrics })
    }

    fn index(&self) -> u32 {
        self.facts["index"].as_u64().unwrap_or(0) as u32
    }

    fn series(&self, name: &'static str) -> Option<&'a SampleSeries> {
        self.series.get(&(self.index(), name)).filter(|series| !series.is_empty())
    }

    /// Returns the reason why a quantity has no value.
    pub(super) fn why(&self, name: &str) -> Option<&'a str> {
        let none = self.facts["no_means"].as_str().filter(|_| GPU_MEANS.contains(&name));
        if GPU_DRAM_BYTES.contains(&name) {
            let Some(metrics) = self.metrics else { return Some(NOT_COUNTED) };
            return metrics.why_not().or_else(|| metrics.facts["missing"][name].as_str());
        }
        let not_read = || self.host_facts["means_every_ms"].is_null().then_some(NOT_READ);
        self.facts["missing"][name].as_str().or(none).or_else(not_read)
    }

    /// Returns the time from the first reading of a mean or of the energy to the last.
    pub(super) fn extent(&self) -> Cover {
        let all = means().chain([GPU_ENERGY, GPU_POWER]);
        let span = |series: &SampleSeries| {
            let (first, last) = (series.first_key_value()?.0, series.last_key_value()?.0);
            Some(Interval::new(*first, *last))
        };
        let spans = all.filter_map(|name| span(self.series(name)?));
        Cover::of(Interval::hull(spans))
    }

    /// Returns the samples that a counter's means are of.
    pub(crate) fn samples_of(&self, name: &'static str) -> impl Iterator<Item = (Interval, f64)> {
        let every_ns = means_every_ns(self.host_facts);
        let fine = move |time_ns: u64| {
            let fine = self.metrics.filter(|metrics| metrics.tells(name, time_ns));
            fine.map_or(every_ns, |metrics| metrics.interval_ns)
        };
        let series = self.series(name);
        series
            .into_iter()
            .flat_map(move |series| samples(series, holds_ns(Some(self.host_facts)), fine))
    }

    /// Returns what the device did in a part of the time.
    pub(crate) fn within(&self, part: &Cover) -> Activity {
        let holds_ns = holds_ns(Some(self.host_facts));
        let mut sampled_ns = 0;
        let mut mean = |name: &'static str| {
            let (mut sum, mut time_ns) = (0.0, 0);
            for (sample, value) in self.samples_of(name) {
                if part.length_within(sample) == sample.length() {
                    sum += value * sample.length() as f64;
                    time_ns += sample.length();
                }
            }
            sampled_ns = sampled_ns.max(time_ns);
            match time_ns {
                0 => Err(self.why(name).unwrap_or(NO_SAMPLE).to_owned()),
                time_ns => Ok(sum / time_ns as f64),
            }
        };
        let means = means().map(|name| (name, mean(name))).collect();
        let energy = self.energy(part, holds_ns);
        let no_energy = match energy {
            Some(_) => "",
            None => self.why(GPU_ENERGY).unwrap_or(NO_SAMPLE),
        };
        let no_energy = no_energy.to_owned();
        Activity { window_ns: part.length(), sampled_ns, means, energy, no_energy }
    }

    /// Returns the energy in a part of the time, by the device's counter or else by its power, and
    /// the time for which it is known.
    fn energy(&self, part: &Cover, holds_ns: u64) -> Option<(Energy, u64)> {
        let counted = self.series(GPU_ENERGY).map(|series| grown(series, part));
        let counted = counted.filter(|(_, time_ns)| *time_ns > 0);
        counted.map(|(joules, time_ns)| (Energy::counted(joules), time_ns)).or_else(|| {
            let (area, time_ns) = area(self.series(GPU_POWER)?, holds_ns, part);
            let watts = area / time_ns.max(1) as f64;
            (time_ns > 0).then(|| (Energy::of_power(watts, time_ns), time_ns))
        })
    }
}

impl Activity {
    /// Whether anything is known.
    pub(super) fn is_known(&self) -> bool {
        self.energy.is_some() || self.means.values().any(Result::is_ok)
    }

    /// Returns the mean of a quantity; `None` if it isn't known.
    pub(crate) fn mean(&self, name: &str) -> Option<f64> {
        self.means.get(name)?.as_ref().ok().copied()
    }

    /// Returns the energy of a step, if the part is that of so many steps: the mean power by the mean
    /// time of a step. `None` if it is known for less than half of the part.
    pub(super) fn of_step(&self, steps: usize) -> Option<f64> {
        let (energy, time_ns) = self.energy?;
        let is_enough = steps > 0 && time_ns > 0 && time_ns >= self.window_ns / 2;
        let step_ns = self.window_ns as f64 / steps.max(1) as f64;
        is_enough.then(|| energy.joules / time_ns as f64 * step_ns)
    }
}

/// Returns the UUID of a device that the processes of a file know by this number.
pub(super) fn uuid_of(file: &TraceFile, device: u32) -> Option<&str> {
    let mut same = file.devices().iter().filter(|row| row.device == device);
    same.find_map(|row| Some(file.name(row.uuid)).filter(|uuid| !uuid.is_empty()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MS: u64 = 1_000_000;

    fn cover(parts: &[(u64, u64)]) -> Cover {
        Cover::of(parts.iter().map(|(from, until)| Interval::new(from * MS, until * MS)))
    }

    fn series(values: &[(u64, f64)]) -> SampleSeries {
        values.iter().map(|(at, value)| (at * MS, *value)).collect()
    }

    #[test]
    fn only_samples_within_the_part_count() {
        // The value 0.5 was read several times, and written once.
        let active = [(0, 0.1), (100, 0.9), (200, 0.5), (600, 0.2), (700, 0.0)];
        let energy = [(0, 1000.0), (400, 1100.0), (800, 1300.0)];
        let all = [((2, GPU_SM_ACTIVE), series(&active)), ((2, GPU_ENERGY), series(&energy))];
        let all = all.into();
        let host = json!({ "every_ms": 500, "means_every_ms": 100 });
        let facts = json!({ "index": 2, "missing": { "gpu_tensor_active": "Not Supported" } });
        let read = DeviceReadings { series: &all, host_facts: &host, facts: &facts, metrics: None };
        let of = |parts: &[(u64, u64)]| {
            let found = read.within(&cover(parts));
            (found.mean(GPU_SM_ACTIVE), found.sampled_ns / MS)
        };
        assert_eq!(
            of(&[(50, 350)]),
            Some((0.9 + 0.5) / 2.0).map(|mean| (Some(mean), 200)).unwrap()
        );
        assert_eq!(of(&[(0, 200), (650, 900)]), (Some(0.5), 200));
        assert_eq!(of(&[(610, 690)]), (None, 0));
        let found = read.within(&cover(&[(200, 600)]));
        assert_eq!(found.means[GPU_TENSOR_ACTIVE], Err("Not Supported".to_owned()));
        assert_eq!(found.means[GPU_DRAM_BANDWIDTH], Err(NO_SAMPLE.to_owned()));
        assert_eq!(found.energy, Some((Energy::counted(150.0), 400 * MS)));
        assert_eq!((found.of_step(3), found.of_step(0)), (Some(50.0), None));
        // Half of the steps lie after the last reading.
        let found = read.within(&cover(&[(600, 1000)]));
        assert_eq!(found.energy, Some((Energy::counted(100.0), 200 * MS)));
        assert_eq!(found.of_step(2), Some(100.0));
        assert_eq!(read.within(&cover(&[(700, 1000)])).of_step(2), None);
    }

    #[test]
    fn without_a_counter_the_power_tells_the_energy() {
        let power = [((0, GPU_POWER), series(&[(0, 100.0), (500, 300.0), (1000, 0.0)]))].into();
        let host = json!({ "every_ms": 500 });
        let facts = json!({ "index": 0 });
        let read =
            DeviceReadings { series: &power, host_facts: &host, facts: &facts, metrics: None };
        let found = read.within(&cover(&[(250, 750)]));
        assert_eq!(found.energy, Some((Energy::of_power(200.0, 500 * MS), 500 * MS)));
        assert_eq!(found.means[GPU_SM_ACTIVE], Err(NOT_READ.to_owned()));
        let none = BTreeMap::new();
        let found = DeviceReadings { series: &none, ..read }.within(&cover(&[(0, 1)]));
        assert_eq!((found.energy, found.is_known()), (None, false));
    }
}
