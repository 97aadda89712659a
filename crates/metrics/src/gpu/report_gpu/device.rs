//! Collects the samples of a host's device, and makes the device's entry in the summary.

use serde_json::Value;
use tprof_document::RankContext;
use tprof_facts::clock_reasons::slowing;
use tprof_rank::base::object::object;
use tprof_rank::base::reading::Reading;
use tprof_trace::model::counter::*;

use super::activity::{DeviceMetrics, DeviceReadings};
use super::samples::{FileSamples, HostSamples, hosts, missing};
use super::series::{SampleSeries, SeriesStats, share, sums};

const NO_READING: &str = "recording ended before the first reading";
pub(super) const UNKNOWN: &str = "the driver does not report it";

/// The summary's entry for a device.
#[derive(Clone, Debug)]
pub struct SampledGpu {
    /// The device's host.
    pub host: String,
    /// Number of the device on the host.
    pub gpu: u32,
    /// The ranks that see the device, each with the number by which it knows the device, in words;
    /// `None` if no rank is known to see it.
    pub visible_to: Option<String>,
    /// Share of the time in which any kernel ran, as the driver reports it.
    pub mean_utilization: Reading<f64>,
    /// The highest reading of the utilization.
    pub highest_utilization: Reading<f64>,
    /// The most memory in use by all programs together, bytes.
    pub peak_memory_bytes: Reading<u64>,
    /// Total memory of the device, bytes.
    pub memory_bytes: Reading<u64>,
    /// Share of the time in which the clocks were lowered because of power or heat.
    pub throttled: Reading<f64>,
}
object! { SampledGpu {
    plain host, plain gpu, some visible_to, reading mean_utilization, reading highest_utilization,
    reading peak_memory_bytes, reading memory_bytes, reading throttled,
} }

/// Returns the summary's entries for all devices of a run; missing if no device was read.
pub fn sampled(parts: &[(RankContext, FileSamples)]) -> Reading<Vec<SampledGpu>> {
    let hosts = hosts(parts);
    let mut all = Vec::new();
    for (name, host) in &hosts {
        all.extend(host.devices().map(|facts| DeviceSamples { host, facts }.sampled(name)));
    }
    if all.is_empty() { Reading::missing(missing(&hosts)) } else { Reading::Is(all) }
}

/// The samples and facts of one device of a host.
pub(super) struct DeviceSamples<'a> {
    pub(super) host: &'a HostSamples<'a>,
    pub(super) facts: &'a Value,
}

impl DeviceSamples<'_> {
    pub(super) fn index(&self) -> u32 {
        self.facts["index"].as_u64().unwrap_or(0) as u32
    }

    pub(super) fn series(&self, name: &'static str) -> Option<&SampleSeries> {
        self.host.series.get(&(self.index(), name)).filter(|series| !series.is_empty())
    }

    pub(super) fn sums(&self, name: &'static str) -> Option<SeriesStats> {
        sums(self.series(name)?, self.host.holds_ns())
    }

    /// Returns the share of the time in which the clocks were lowered for any of these reasons.
    pub(super) fn throttled(&self, bits: u64) -> Option<f64> {
        share(self.series(GPU_THROTTLE)?, self.host.holds_ns(), bits)
    }

    /// Returns the reason why a quantity has no value.
    pub(super) fn why(&self, name: &str) -> &str {
        self.facts["missing"][name].as_str().unwrap_or(NO_READING)
    }

    /// Returns the readings of the means and the energy; `None` if the host has no facts.
    pub(super) fn readings_of_units(&self) -> Option<DeviceReadings<'_>> {
        let (series, host_facts) = (&self.host.series, self.host.facts?);
        let metrics = self.metrics();
        Some(DeviceReadings { series, host_facts, facts: self.facts, metrics })
    }

    /// Returns what the process that samples counters said of the device.
    pub(super) fn metrics(&self) -> Option<DeviceMetrics<'_>> {
        DeviceMetrics::of(&self.host.metrics, self.facts["uuid"].as_str()?)
    }

    pub(super) fn sampled(&self, host: &str) -> SampledGpu {
        let known = |value: Option<f64>, why: &str| match value {
            Some(value) => Reading::Is(value),
            None => Reading::missing(why),
        };
        let of = |name: &'static str, of: fn(SeriesStats) -> f64| {
            known(self.sums(name).map(of), self.why(name))
        };
        let throttled = self.throttled(slowing());
        let bytes = |reading: Reading<f64>| match reading {
            Reading::Is(value) => Reading::Is(value as u64),
            _ => Reading::missing(self.why(GPU_MEMORY_BYTES)),
        };
        SampledGpu {
            host: host.to_owned(),
            gpu: self.index(),
            visible_to: self.visible_to().map(|words| words.join(", ")),
            mean_utilization: of(GPU_UTILIZATION, |sums| sums.mean),
            highest_utilization: of(GPU_UTILIZATION, |sums| sums.max),
            peak_memory_bytes: bytes(of(GPU_MEMORY_BYTES, |sums| sums.max)),
            memory_bytes: match self.facts["memory_bytes"].as_u64() {
                Some(bytes) => Reading::Is(bytes),
                None => Reading::missing(UNKNOWN),
            },
            throttled: known(throttled, self.why(GPU_THROTTLE)),
        }
    }

    pub(super) fn visible_to(&self) -> Option<&Vec<String>> {
        self.host.visible_to.get(self.facts["uuid"].as_str()?)
    }
}
