//! Collects the management library's readings of devices by file, and joins them by host.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use serde_json::Value;
use tprof_document::RankContext;
use tprof_trace::TraceFile;
use tprof_trace::model::NameId;
use tprof_trace::model::counter::*;

use super::series::SampleSeries;

const NOT_SAMPLED: &str =
    "no GPU samples in this run (needs `--activities gpu`, the default, and an NVIDIA driver)";

/// Names of the counters that are read once per `--gpu-interval` for each device.
pub(super) const COUNTERS: [&str; 8] = [
    GPU_UTILIZATION,
    GPU_MEMORY_UTILIZATION,
    GPU_MEMORY_BYTES,
    GPU_SM_CLOCK,
    GPU_MEMORY_CLOCK,
    GPU_POWER,
    GPU_TEMPERATURE,
    GPU_THROTTLE,
];

/// Returns the names of all counters of a device that are read from time to time.
pub(super) fn counters() -> impl Iterator<Item = &'static str> {
    COUNTERS.into_iter().chain([GPU_ENERGY]).chain(means())
}

/// Returns the names of the counters that are means over a sample.
pub(crate) fn means() -> impl Iterator<Item = &'static str> {
    GPU_MEANS.into_iter().chain(GPU_DRAM_BYTES)
}

/// A value counts as valid until the next reading. But if the next reading comes later than this
/// many nanoseconds, and later than `HOLDS_READINGS` sampling periods, then sampling had stopped,
/// and the time between the two isn't counted. The sampler writes an unchanged value once a second.
const HOLDS_NS: u64 = 2_500_000_000;
const HOLDS_READINGS: u64 = 5;

/// The readings of a file.
#[derive(Clone, Debug, Default)]
pub struct FileSamples {
    /// Name of the host.
    pub(crate) host: String,
    /// The library's facts, as the sampler wrote them.
    pub(crate) facts: Option<Value>,
    /// What the process that samples counters said, with `--gpu-metrics`.
    pub(crate) metrics: Option<Value>,
    /// Readings in order of time, by the library's number for the device and by counter.
    pub(crate) series: BTreeMap<(u32, &'static str), SampleSeries>,
    /// Devices that the file's processes see: each with its UUID and the number by which the
    /// processes know it.
    pub(super) sees: BTreeSet<(String, u32)>,
}

/// Reads a file's readings.
pub fn of_file(file: &TraceFile) -> FileSamples {
    let mut part = FileSamples { host: file.header().host.clone(), ..FileSamples::default() };
    // Take the last property, because it also lists quantities that devices stopped reporting.
    let facts = file.properties().filter(|(key, _)| *key == "nvml").last();
    part.facts = facts.and_then(|(_, text)| serde_json::from_str(text).ok());
    let metrics = file.properties().filter(|(key, _)| *key == "gpu_metrics").last();
    part.metrics = metrics.and_then(|(_, text)| serde_json::from_str(text).ok());
    let mut names: FxHashMap<NameId, Option<&'static str>> = FxHashMap::default();
    let of_host = file.counters().iter().filter(|row| row.process.is_none());
    for row in of_host.filter(|row| !row.value.is_infinite() && file.holds(row.time_ns)) {
        let find = || counters().find(|known| *known == file.name(row.name));
        let known = *names.entry(row.name).or_insert_with(find);
        if let (Some(device), Some(known)) = (row.device, known) {
            part.series.entry((device, known)).or_default().insert(row.time_ns, row.value);
        }
    }
    let uuid = |row: &tprof_trace::model::Device| (file.name(row.uuid).to_owned(), row.device);
    part.sees = file.devices().iter().map(uuid).filter(|(uuid, _)| !uuid.is_empty()).collect();
    part
}

/// The readings of a host, from all files that were written there.
#[derive(Default)]
pub(super) struct HostSamples<'a> {
    /// The context of one of the host's files. All of them have the same clock.
    pub(super) at: Option<&'a RankContext>,
    pub(super) facts: Option<&'a Value>,
    /// What the processes that sample counters said, one for each collector.
    pub(super) metrics: Vec<&'a Value>,
    pub(super) series: BTreeMap<(u32, &'static str), SampleSeries>,
    /// For each device, by UUID: the ranks that see it, each with the number by which it knows the
    /// device, in words.
    pub(super) visible_to: BTreeMap<&'a str, Vec<String>>,
}

pub(super) fn hosts(parts: &[(RankContext, FileSamples)]) -> BTreeMap<&str, HostSamples<'_>> {
    let mut hosts: BTreeMap<&str, HostSamples<'_>> = BTreeMap::new();
    for (at, part) in parts {
        let host = hosts.entry(&part.host).or_default();
        host.at = host.at.or(Some(at));
        host.facts = host.facts.or(part.facts.as_ref());
        host.metrics.extend(&part.metrics);
        for (key, series) in &part.series {
            host.series.entry(*key).or_default().extend(series);
        }
        for (uuid, number) in &part.sees {
            let words = format!("{} as {number}", at.label);
            host.visible_to.entry(uuid).or_default().push(words);
        }
    }
    hosts
}

impl HostSamples<'_> {
    /// Returns the reason why nothing is known about the host's devices, if nothing is.
    pub(super) fn missing(&self) -> Option<&str> {
        match self.facts {
            Some(facts) => facts["missing"].as_str(),
            None => Some(NOT_SAMPLED),
        }
    }

    /// Returns the longest time for which a reading counts as valid, ns.
    pub(super) fn holds_ns(&self) -> u64 {
        holds_ns(self.facts)
    }

    pub(super) fn devices(&self) -> impl Iterator<Item = &Value> {
        self.facts.and_then(|facts| facts["devices"].as_array()).into_iter().flatten()
    }
}

/// Returns the longest time for which a reading counts as valid, ns, by a host's facts.
pub(super) fn holds_ns(facts: Option<&Value>) -> u64 {
    let every_ms = facts.and_then(|facts| facts["every_ms"].as_u64()).unwrap_or(0);
    every_ms.saturating_mul(HOLDS_READINGS * 1_000_000).max(HOLDS_NS)
}

/// Returns the time between two samples of the means, ns, by a host's facts; 0 if they are not read.
pub(super) fn means_every_ns(facts: &Value) -> u64 {
    facts["means_every_ms"].as_u64().unwrap_or(0).saturating_mul(1_000_000)
}

/// Returns the reasons of all hosts, for a run in which nothing is known about any device.
pub(super) fn missing(hosts: &BTreeMap<&str, HostSamples<'_>>) -> String {
    let mut why: Vec<&str> = hosts.values().filter_map(|host| host.missing()).collect();
    why.sort_unstable();
    why.dedup();
    if why.is_empty() { NOT_SAMPLED.to_owned() } else { why.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn rare_readings_stay_valid_for_several_sampling_periods() {
        let holds = |every_ms: u64| {
            let facts = serde_json::json!({ "every_ms": every_ms });
            HostSamples { facts: Some(&facts), ..HostSamples::default() }.holds_ns()
        };
        assert_eq!([holds(100), holds(500), holds(60_000)], [HOLDS_NS, HOLDS_NS, 300 * SECOND]);
        assert_eq!(HostSamples::default().holds_ns(), HOLDS_NS);
    }
}
