//! Devices as their management library tells of them, from outside the job:
//! utilisation, memory, clocks, power, temperature, throttling.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tprof_trace::TraceFile;
use tprof_trace::model::counter::*;

use crate::base::reading::{Reading, object};
use crate::document::{
    Analysis, Body, Cell, Column, DocumentKind, Options, RankAt, Table, Unit, View, boxed,
};
use crate::rank::{Needs, RankTrace};

/// The report.
pub const KIND: DocumentKind = DocumentKind {
    name: "gpu",
    about: "GPUs from outside: utilization, memory, clocks, power, heat",
    analysis: || boxed(Devices),
};

const NOT_SAMPLED: &str =
    "no GPU samples in this run (needs `--activities gpu`, the default, and an NVIDIA driver)";
const UNKNOWN: &str = "the driver does not report it";
const NO_READING: &str = "recording ended before the first reading";

/// Counters of a device.
const COUNTERS: [&str; 8] = [
    GPU_UTILIZATION,
    GPU_MEMORY_UTILIZATION,
    GPU_MEMORY_BYTES,
    GPU_SM_CLOCK,
    GPU_MEMORY_CLOCK,
    GPU_POWER,
    GPU_TEMPERATURE,
    GPU_THROTTLE,
];

/// A value holds until the next, but no longer than this, or than so many readings
/// take: then they had stopped. One that stays is written once a second.
const HOLDS_NS: u64 = 2_500_000_000;
const HOLDS_READINGS: u64 = 5;

/// Why clocks are low, by bit, and whether that slows what runs: the others say that
/// there is nothing to do, or what somebody set.
const REASONS: [(&str, bool); 9] = [
    ("idle", false),
    ("application clocks", false),
    ("power cap", true),
    ("hardware slowdown", true),
    ("sync boost", false),
    ("heat, by software", true),
    ("heat, by hardware", true),
    ("power brake", true),
    ("display clocks", false),
];

/// Readings by time, ns.
type SampleSeries = BTreeMap<u64, f64>;

/// What a file has.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileSamples {
    host: String,
    facts: Option<Value>,
    series: BTreeMap<(u32, &'static str), SampleSeries>,
    /// Devices that its processes see: UUID, number.
    sees: BTreeSet<(String, u32)>,
}

/// Reads a file's.
pub(crate) fn of_file(file: &TraceFile) -> FileSamples {
    let mut part = FileSamples { host: file.header().host.clone(), ..FileSamples::default() };
    // The newest says what devices stopped to tell.
    let facts = file.properties().filter(|(key, _)| *key == "nvml").last();
    part.facts = facts.and_then(|(_, text)| serde_json::from_str(text).ok());
    for row in file.counters().iter().filter(|row| row.process.is_none() && row.value.is_finite()) {
        let name = file.name(row.name);
        if let (Some(device), Some(known)) =
            (row.device, COUNTERS.iter().find(|known| **known == name))
        {
            part.series.entry((device, known)).or_default().insert(row.time_ns, row.value);
        }
    }
    let uuid = |row: &tprof_trace::model::Device| (file.name(row.uuid).to_owned(), row.device);
    part.sees = file.devices().iter().map(uuid).filter(|(uuid, _)| !uuid.is_empty()).collect();
    part
}

/// A series in numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SeriesStats {
    mean: f64,
    min: f64,
    max: f64,
}

/// How long each value held, `most_ns` at most; a single one, or the last, for no time.
fn held(series: &SampleSeries, most_ns: u64) -> impl Iterator<Item = (u64, f64)> + '_ {
    let next = series.keys().skip(1);
    series.iter().zip(next).filter_map(move |((at, value), next)| {
        let held = next - at;
        (held <= most_ns).then_some((held, *value))
    })
}

fn sums(series: &SampleSeries, most_ns: u64) -> Option<SeriesStats> {
    let last = *series.values().last()?;
    let (mut area, mut time) = (0.0, 0.0);
    for (held, value) in held(series, most_ns) {
        area += held as f64 * value;
        time += held as f64;
    }
    let fold = |of: fn(f64, f64) -> f64| series.values().copied().fold(last, of);
    Some(SeriesStats {
        mean: if time > 0.0 { area / time } else { last },
        min: fold(f64::min),
        max: fold(f64::max),
    })
}

/// Share of the time in which any of these bits was set.
fn share(series: &SampleSeries, most_ns: u64, bits: u64) -> Option<f64> {
    let set = |value: f64| value as u64 & bits != 0;
    let last = *series.values().last()?;
    let (all, with) = held(series, most_ns).fold((0, 0), |(all, with), (held, value)| {
        (all + held, with + if set(value) { held } else { 0 })
    });
    Some(if all > 0 { with as f64 / all as f64 } else { f64::from(u8::from(set(last))) })
}

/// Bits that slow what runs.
fn slowing() -> u64 {
    let bits = REASONS.iter().enumerate().filter(|(_, (_, slows))| *slows);
    bits.fold(0, |all, (at, _)| all | 1 << at)
}

/// `tprof report gpu`.
struct Devices;

impl Analysis for Devices {
    const KIND: &'static str = KIND.name;
    const HTA: bool = false;
    type Part = FileSamples;

    fn needs(&self, _: &Options) -> Needs {
        Needs::default()
    }

    fn rank(&self, rank: &RankTrace<'_>, _: &RankAt, _: &Options) -> FileSamples {
        of_file(rank.file)
    }

    fn join(&self, parts: Vec<(RankAt, FileSamples)>, _: &Options) -> Body {
        let hosts = hosts(&parts);
        let why = missing(&hosts);
        let mut tables = [devices_table(&why), throttling_table(&why), readings_table(&why)];
        for (name, host) in &hosts {
            for facts in host.devices() {
                let device = DeviceSamples { host, facts };
                tables[0].row(device.cells(name));
                device.throttling(name, &mut tables[1]);
                device.readings(name, &mut tables[2]);
            }
        }
        let mut notes = Vec::new();
        if tables.iter().any(|table| !table.rows.is_empty()) {
            for (name, host) in &hosts {
                notes.extend(host.missing().map(|why| format!("{name} has no readings: {why}")));
            }
        }
        Body { tables: tables.into(), notes }
    }
}

/// Why nothing is known, if so.
fn missing(hosts: &BTreeMap<&str, HostSamples<'_>>) -> String {
    let mut why: Vec<&str> = hosts.values().filter_map(|host| host.missing()).collect();
    why.sort_unstable();
    why.dedup();
    if why.is_empty() { NOT_SAMPLED.to_owned() } else { why.join("; ") }
}

/// A device in short, for the summary.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// Its host.
    pub host: String,
    /// Its number there.
    pub gpu: u32,
    /// Which ranks see it, and under which number, in words; none is not known to.
    pub visible_to: Option<String>,
    /// Share of the time in which any kernel ran, as the driver says it.
    pub mean_utilization: Reading<f64>,
    /// The highest reading of it.
    pub highest_utilization: Reading<f64>,
    /// Most memory in use, by whomever.
    pub peak_memory_bytes: Reading<u64>,
    /// Its memory.
    pub memory_bytes: Reading<u64>,
    /// Share of the time in which power or heat held clocks down.
    pub throttled: Reading<f64>,
}
object! { Sampled {
    plain host, plain gpu, some visible_to, reading mean_utilization, reading highest_utilization,
    reading peak_memory_bytes, reading memory_bytes, reading throttled,
} }

/// All devices of a run in short; missing if none was read.
pub(crate) fn sampled(parts: &[(RankAt, FileSamples)]) -> Reading<Vec<Sampled>> {
    let hosts = hosts(parts);
    let mut all = Vec::new();
    for (name, host) in &hosts {
        all.extend(host.devices().map(|facts| DeviceSamples { host, facts }.sampled(name)));
    }
    if all.is_empty() { Reading::missing(missing(&hosts)) } else { Reading::Is(all) }
}

/// A host, from all files that were written there.
#[derive(Default)]
struct HostSamples<'a> {
    /// One of its files, whose clock is all of theirs.
    at: Option<&'a RankAt>,
    facts: Option<&'a Value>,
    series: BTreeMap<(u32, &'static str), SampleSeries>,
    /// By UUID: which ranks see it, and under which number, in words.
    visible_to: BTreeMap<&'a str, Vec<String>>,
}

fn hosts(parts: &[(RankAt, FileSamples)]) -> BTreeMap<&str, HostSamples<'_>> {
    let mut hosts: BTreeMap<&str, HostSamples<'_>> = BTreeMap::new();
    for (at, part) in parts {
        let host = hosts.entry(&part.host).or_default();
        host.at = host.at.or(Some(at));
        host.facts = host.facts.or(part.facts.as_ref());
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
    /// Why nothing is known of its devices, if so.
    fn missing(&self) -> Option<&str> {
        match self.facts {
            Some(facts) => facts["missing"].as_str(),
            None => Some(NOT_SAMPLED),
        }
    }

    /// How long a reading holds at most, ns.
    fn holds_ns(&self) -> u64 {
        let every_ms = self.facts.and_then(|facts| facts["every_ms"].as_u64()).unwrap_or(0);
        every_ms.saturating_mul(HOLDS_READINGS * 1_000_000).max(HOLDS_NS)
    }

    fn devices(&self) -> impl Iterator<Item = &Value> {
        self.facts.and_then(|facts| facts["devices"].as_array()).into_iter().flatten()
    }
}

/// A device of a host.
struct DeviceSamples<'a> {
    host: &'a HostSamples<'a>,
    facts: &'a Value,
}

impl DeviceSamples<'_> {
    fn index(&self) -> u32 {
        self.facts["index"].as_u64().unwrap_or(0) as u32
    }

    fn series(&self, name: &'static str) -> Option<&SampleSeries> {
        self.host.series.get(&(self.index(), name)).filter(|series| !series.is_empty())
    }

    fn sums(&self, name: &'static str) -> Option<SeriesStats> {
        sums(self.series(name)?, self.host.holds_ns())
    }

    /// Share of the time in which clocks were held down for any of these reasons.
    fn throttled(&self, bits: u64) -> Option<f64> {
        share(self.series(GPU_THROTTLE)?, self.host.holds_ns(), bits)
    }

    /// Why a quantity has no value.
    fn why(&self, name: &str) -> &str {
        self.facts["missing"][name].as_str().unwrap_or(NO_READING)
    }

    fn sampled(&self, host: &str) -> Sampled {
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
        Sampled {
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

    fn visible_to(&self) -> Option<&Vec<String>> {
        self.host.visible_to.get(self.facts["uuid"].as_str()?)
    }

    /// A quantity in numbers.
    fn cell(&self, name: &'static str, of: impl Fn(SeriesStats) -> f64) -> Cell {
        Cell::known(self.sums(name).map(of), self.why(name))
    }

    fn cells(&self, host: &str) -> Vec<Cell> {
        let text = |key: &str| self.facts[key].as_str();
        let visible = self.visible_to();
        let readings = COUNTERS.iter().filter_map(|name| Some(self.series(name)?.len())).max();
        let bytes = |value: f64| value as u64;
        let most = self.sums(GPU_MEMORY_BYTES).map(|sums| bytes(sums.max));
        let throttled = self.throttled(slowing());
        let unknown = UNKNOWN;
        vec![
            host.into(),
            self.index().into(),
            Cell::known(text("uuid").filter(|uuid| !uuid.is_empty()), unknown),
            Cell::known(text("pci"), unknown),
            Cell::known(self.host.facts.and_then(|facts| facts["driver"].as_str()), unknown),
            readings.unwrap_or(0).into(),
            self.cell(GPU_UTILIZATION, |sums| sums.mean),
            self.cell(GPU_UTILIZATION, |sums| sums.max),
            self.cell(GPU_MEMORY_UTILIZATION, |sums| sums.mean),
            Cell::known(most, self.why(GPU_MEMORY_BYTES)),
            Cell::known(self.facts["memory_bytes"].as_u64(), unknown),
            self.cell(GPU_SM_CLOCK, |sums| (sums.mean / 1e6).round()),
            self.cell(GPU_SM_CLOCK, |sums| sums.min / 1e6),
            self.cell(GPU_SM_CLOCK, |sums| sums.max / 1e6),
            Cell::known(self.facts["highest_sm_clock_hz"].as_f64().map(|hz| hz / 1e6), unknown),
            self.cell(GPU_MEMORY_CLOCK, |sums| (sums.mean / 1e6).round()),
            self.cell(GPU_POWER, |sums| sums.mean),
            self.cell(GPU_POWER, |sums| sums.max),
            Cell::known(self.facts["power_limit_watts"].as_f64(), unknown),
            self.cell(GPU_TEMPERATURE, |sums| sums.max),
            Cell::known(throttled, self.why(GPU_THROTTLE)),
            Cell::known(visible.map(|words| words.join(", ")), "no recorded process uses it"),
            Cell::known(text("name"), unknown),
        ]
    }

    fn throttling(&self, host: &str, table: &mut Table) {
        for (at, (reason, slows)) in REASONS.iter().enumerate() {
            match self.throttled(1 << at) {
                Some(share) if share > 0.0 => table.row(vec![
                    host.into(),
                    self.index().into(),
                    share.into(),
                    (*slows).into(),
                    (*reason).into(),
                ]),
                _ => {}
            }
        }
    }

    fn readings(&self, host: &str, table: &mut Table) {
        let Some(at) = self.host.at else { return };
        for name in COUNTERS {
            for (time_ns, value) in self.series(name).into_iter().flatten() {
                table.row(vec![
                    at.clock.since_start(*time_ns).into(),
                    host.into(),
                    self.index().into(),
                    (*value).into(),
                    name.into(),
                ]);
            }
        }
    }
}

fn devices_table(why: &str) -> Table {
    let columns = vec![
        Column::data("host", Unit::Text),
        Column::new("gpu", "GPU", Unit::Id),
        Column::data("uuid", Unit::Text),
        Column::data("pci", Unit::Text),
        Column::data("driver", Unit::Text),
        Column::data("readings", Unit::Count),
        Column::new("mean_utilization", "busy", Unit::Share),
        Column::data("highest_utilization", Unit::Share),
        Column::data("mean_memory_utilization", Unit::Share),
        Column::new("peak_memory_bytes", "memory", Unit::Bytes),
        Column::data("memory_bytes", Unit::Bytes),
        Column::new("mean_sm_clock_mhz", "MHz", Unit::Number),
        Column::data("lowest_sm_clock_mhz", Unit::Number),
        Column::data("highest_sm_clock_mhz", Unit::Number),
        Column::data("limit_sm_clock_mhz", Unit::Number),
        Column::data("mean_memory_clock_mhz", Unit::Number),
        Column::new("mean_power_watts", "W", Unit::Number),
        Column::data("highest_power_watts", Unit::Number),
        Column::data("limit_power_watts", Unit::Number),
        Column::new("highest_temperature_celsius", "max C", Unit::Number),
        Column::new("throttled", "throttled", Unit::Share),
        Column::data("visible_to", Unit::Text),
        Column::new("name", "name", Unit::Name),
    ];
    Table::new("gpus", "GPUs, sampled from outside the job", columns)
        .about(
            "busy: share of time with any kernel of any process, by the driver; memory: most in \
             use; throttled: clocks held down by power or heat",
        )
        .empty(why)
}

fn throttling_table(why: &str) -> Table {
    let columns = vec![
        Column::data("host", Unit::Text),
        Column::new("gpu", "GPU", Unit::Id),
        Column::new("share", "time", Unit::Share),
        Column::new("slows", "slows work", Unit::Flag),
        Column::new("reason", "reason", Unit::Name),
    ];
    Table::new("throttling", "Reasons for low clocks", columns)
        .about("several reasons may hold at once")
        .empty(why)
}

fn readings_table(why: &str) -> Table {
    let columns = vec![
        Column::new("time_ns", "time", Unit::Time),
        Column::new("host", "host", Unit::Text),
        Column::new("gpu", "GPU", Unit::Id),
        Column::new("value", "value", Unit::Number),
        Column::new("counter", "counter", Unit::Name),
    ];
    Table::new("readings", "Readings", columns).view(View::Data).empty(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_value_holds_until_the_next_but_not_over_a_gap() {
        // The device told nothing between seconds 2 and 60.
        let series: SampleSeries =
            [(0, 10.0), (SECOND, 30.0), (2 * SECOND, 90.0), (60 * SECOND, 0.0)].into();
        let found = sums(&series, 5 * SECOND).unwrap();
        assert_eq!(found, SeriesStats { mean: 20.0, min: 0.0, max: 90.0 });
        assert_eq!(sums(&[(5, 7.0)].into(), SECOND).unwrap().mean, 7.0);
        assert_eq!(sums(&SampleSeries::new(), SECOND), None);
    }

    #[test]
    fn readings_that_are_far_apart_hold_as_long_as_they_are_wanted() {
        let holds = |every_ms: u64| {
            let facts = serde_json::json!({ "every_ms": every_ms });
            HostSamples { facts: Some(&facts), ..HostSamples::default() }.holds_ns()
        };
        assert_eq!([holds(100), holds(500), holds(60_000)], [HOLDS_NS, HOLDS_NS, 300 * SECOND]);
        assert_eq!(HostSamples::default().holds_ns(), HOLDS_NS);
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
