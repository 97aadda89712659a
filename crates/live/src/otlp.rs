//! Writes snapshots as a request of OTLP, OpenTelemetry's protocol, in its JSON encoding: the figures
//! that [`mod@crate::prometheus`] has, by the names of OpenTelemetry's semantic conventions where
//! these name such a thing (`process.*`, `hw.*`), and else `tprof.*`.
//!
//! A resource is the ranks of a run on one host. Values are of a rank, whose devices are added up
//! (`hw.id` says so). Sums are cumulative: a lost request loses no part of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::figures::{Figure, LIMITED};
use crate::metric::{GAUGE, Metric};
use crate::snapshot::{RankState, Snapshot};

/// Cumulative, in the protocol's numbers.
const CUMULATIVE: u8 = 2;

/// A metric of OpenTelemetry: its description, and its data points.
struct OtelMetric {
    about: String,
    unit: &'static str,
    kind: Kind,
    points: Vec<Value>,
}

/// How values of a metric add up.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// A sum that only grows.
    Counter,
    /// A value that ranks share, so that their sum means something.
    UpDownCounter,
    Gauge,
}

/// Name, unit and kind of a metric, and its further attributes.
type Named = (&'static str, &'static str, Kind, &'static [(&'static str, &'static str)]);

const OF_GPUS: &[(&str, &str)] = &[("hw.type", "gpu")];

/// Returns the request with all values of the runs, each with its name. `unix_ns` is the time of the
/// values.
pub fn otlp(runs: &[(&str, &Snapshot)], unix_ns: u64) -> Value {
    let mut resources = Vec::new();
    for (run, snapshot) in runs {
        let mut hosts: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, rank) in snapshot.ranks.iter().enumerate() {
            hosts.entry(&rank.host).or_default().push(at);
        }
        for (host, ranks) in hosts {
            resources.push(resource(run, host, snapshot, &ranks, unix_ns));
        }
    }
    json!({ "resourceMetrics": resources })
}

fn resource(run: &str, host: &str, snapshot: &Snapshot, ranks: &[usize], unix_ns: u64) -> Value {
    let times = (snapshot.start_unix_ns, unix_ns);
    let mut metrics = Metrics { times, all: BTreeMap::new() };
    ranks.iter().for_each(|at| metrics.of_rank(snapshot, *at));
    let metrics: Vec<Value> = metrics.all.into_iter().map(|(name, of)| written(name, of)).collect();
    let version = env!("CARGO_PKG_VERSION");
    let mut attributes = vec![
        text("service.name", "tprof"),
        text("service.version", version),
        text("tprof.run", run),
    ];
    if !host.is_empty() {
        attributes.push(text("host.name", host));
    }
    json!({
        "resource": { "attributes": attributes },
        "scopeMetrics": [{
            "scope": { "name": "tprof", "version": version },
            "metrics": metrics,
        }],
    })
}

/// The metrics of a resource, by name.
struct Metrics {
    /// When sums began, and the time of the values, nanoseconds since 1970.
    times: (u64, u64),
    all: BTreeMap<&'static str, OtelMetric>,
}

impl Metrics {
    /// Adds all values of a rank.
    fn of_rank(&mut self, snapshot: &Snapshot, at: usize) {
        let rank = &snapshot.ranks[at];
        for metric in &snapshot.metrics {
            let Some(value) = metric.values[at].filter(|value| value.is_finite()) else { continue };
            if let Some(name) = metric.key.strip_prefix(GAUGE) {
                let named = ("tprof.gauge", "1", Kind::Gauge, &[][..]);
                let about = "value that the program measures";
                self.add(rank, named, about, Some(("tprof.gauge.name", name)), value);
            } else if let Some(of) = Metric::ALL.into_iter().find(|of| of.key() == metric.key) {
                let scale = if of.unit() == "ns" { 1e-9 } else { 1.0 };
                self.add(rank, of_metric(of), &metric.about, None, value * scale);
            }
        }
        let Some(figures) = snapshot.figures.get(at) else { return };
        for figure in Figure::ALL {
            if let Some(value) = figures.value(figure) {
                self.add(rank, of_figure(figure), figure.about(), None, value);
            }
        }
        for (reason, seconds) in figures.limited() {
            let named = ("tprof.gpu.clock_limited.time", "s", Kind::Counter, OF_GPUS);
            self.add(rank, named, LIMITED, Some(("tprof.reason", reason)), seconds);
        }
    }

    /// Adds a value of a rank, with a further attribute.
    fn add(
        &mut self,
        rank: &RankState,
        (name, unit, kind, fixed): Named,
        about: &str,
        more: Option<(&str, &str)>,
        value: f64,
    ) {
        let number = rank.rank.map(|rank| rank.to_string());
        let number =
            number.map(|rank| json!({ "key": "tprof.rank", "value": { "intValue": rank } }));
        let mut attributes: Vec<Value> = number.into_iter().collect();
        attributes.push(text("tprof.file", &rank.file));
        attributes.extend(fixed.iter().chain(&more).map(|(key, value)| text(key, value)));
        if fixed == OF_GPUS {
            attributes.push(text("hw.id", &format!("devices of {}", rank.label)));
        }
        let mut point = json!({
            "attributes": attributes,
            "timeUnixNano": self.times.1.to_string(),
            "asDouble": value,
        });
        if kind != Kind::Gauge {
            point["startTimeUnixNano"] = self.times.0.to_string().into();
        }
        let new = || OtelMetric { about: about.to_owned(), unit, kind, points: Vec::new() };
        self.all.entry(name).or_insert_with(new).points.push(point);
    }
}

fn written(name: &str, of: OtelMetric) -> Value {
    let mut metric = json!({ "name": name, "unit": of.unit, "description": of.about });
    match of.kind {
        Kind::Gauge => metric["gauge"] = json!({ "dataPoints": of.points }),
        kind => {
            metric["sum"] = json!({
                "dataPoints": of.points,
                "aggregationTemporality": CUMULATIVE,
                "isMonotonic": kind == Kind::Counter,
            });
        }
    }
    metric
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn of_metric(metric: Metric) -> Named {
    use Kind::{Counter, Gauge, UpDownCounter};
    match metric {
        Metric::Steps => ("tprof.steps", "{step}", Counter, &[]),
        Metric::StepsPerSecond => ("tprof.step.rate", "{step}/s", Gauge, &[]),
        Metric::StepTime => ("tprof.step.last", "s", Gauge, &[]),
        Metric::SinceStep => ("tprof.step.age", "s", Gauge, &[]),
        Metric::Rss => ("process.memory.usage", "By", UpDownCounter, &[]),
        Metric::Heap => ("tprof.heap.usage", "By", UpDownCounter, &[]),
        Metric::CpuCores => ("tprof.cpu.cores", "{cpu}", Gauge, &[]),
        Metric::GpuUtilization => ("hw.gpu.utilization", "1", Gauge, OF_GPUS),
        Metric::GpuMemory => ("hw.gpu.memory.usage", "By", UpDownCounter, OF_GPUS),
        Metric::GpuPower => ("hw.power", "W", Gauge, OF_GPUS),
        Metric::Lost => ("tprof.lost", "{event}", Counter, &[]),
    }
}

fn of_figure(figure: Figure) -> Named {
    use Kind::{Counter, Gauge};
    const READ: &[(&str, &str)] = &[("disk.io.direction", "read")];
    const WRITE: &[(&str, &str)] = &[("disk.io.direction", "write")];
    match figure {
        Figure::Steps => ("tprof.step.time", "s", Counter, &[]),
        Figure::DeviceSteps => ("tprof.gpu.step.time", "s", Counter, OF_GPUS),
        Figure::Busy => ("tprof.gpu.busy.time", "s", Counter, OF_GPUS),
        Figure::Compute => ("tprof.gpu.compute.time", "s", Counter, OF_GPUS),
        Figure::Communication => ("tprof.gpu.communication.time", "s", Counter, OF_GPUS),
        Figure::Exposed => ("tprof.gpu.exposed_communication.time", "s", Counter, OF_GPUS),
        Figure::Copied => ("tprof.gpu.copied", "By", Counter, OF_GPUS),
        Figure::Collectives => ("tprof.collectives", "{operation}", Counter, &[]),
        Figure::CollectiveBytes => ("tprof.collective.io", "By", Counter, &[]),
        Figure::CollectiveTime => ("tprof.collective.time", "s", Counter, &[]),
        Figure::Cpu => ("process.cpu.time", "s", Counter, &[]),
        Figure::Read => ("tprof.calls.read", "By", Counter, &[]),
        Figure::Written => ("tprof.calls.written", "By", Counter, &[]),
        Figure::StorageRead => ("process.disk.io", "By", Counter, READ),
        Figure::StorageWritten => ("process.disk.io", "By", Counter, WRITE),
        Figure::Energy => ("hw.energy", "J", Counter, OF_GPUS),
        Figure::Throttled => ("tprof.cpu.throttled.time", "s", Counter, &[]),
        Figure::Median => ("tprof.step.median", "s", Gauge, &[]),
        Figure::Longest => ("tprof.step.longest", "s", Gauge, &[]),
        Figure::Temperature => ("hw.temperature", "Cel", Gauge, OF_GPUS),
        Figure::Clock => ("tprof.gpu.sm_clock", "Hz", Gauge, OF_GPUS),
        Figure::Late => ("tprof.late", "1", Gauge, &[]),
    }
}

#[cfg(test)]
mod tests {
    use tprof_trace::model::HistoryRow;

    use super::*;
    use crate::figures::RankFigures;
    use crate::snapshot::MetricValues;

    fn rank(number: u32, host: &str) -> RankState {
        RankState {
            rank: Some(number),
            label: format!("rank {number}"),
            host: host.to_owned(),
            file: format!("rank-{number}.tprof"),
            ..RankState::default()
        }
    }

    #[test]
    fn a_resource_is_a_run_on_a_host_and_what_is_unknown_is_absent() {
        let mut figures = RankFigures::default();
        figures.add(&[HistoryRow {
            duration_ns: 2_000_000_000,
            steps: 1,
            steps_ns: 2_000_000_000,
            power_milliwatts: Some(500_000),
            storage_read_bytes: Some(7),
            ..HistoryRow::default()
        }]);
        let values = vec![Some(3e9), None];
        let step = MetricValues { key: "step_ns".into(), values, ..MetricValues::default() };
        let snapshot = Snapshot {
            start_unix_ns: 11,
            ranks: vec![rank(0, "a"), rank(1, "b")],
            metrics: vec![step],
            figures: vec![figures, RankFigures::default()],
            ..Snapshot::default()
        };
        let request = otlp(&[("r", &snapshot)], 22);
        let resources = request["resourceMetrics"].as_array().unwrap();
        let metrics = |at: usize| resources[at]["scopeMetrics"][0]["metrics"].as_array().unwrap();
        assert_eq!((resources.len(), metrics(1).len()), (2, 0));
        let of = |name: &str| metrics(0).iter().find(|metric| metric["name"] == name).unwrap();
        let energy = &of("hw.energy")["sum"];
        assert_eq!(
            (&energy["isMonotonic"], &energy["aggregationTemporality"]),
            (&true.into(), &2.into())
        );
        let point = &energy["dataPoints"][0];
        assert_eq!(
            (&point["asDouble"], &point["startTimeUnixNano"]),
            (&1000.0.into(), &"11".into())
        );
        let last = &of("tprof.step.last")["gauge"]["dataPoints"][0];
        assert_eq!((&last["asDouble"], &last["timeUnixNano"]), (&3.0.into(), &"22".into()));
        assert_eq!(of("process.disk.io")["sum"]["dataPoints"].as_array().unwrap().len(), 1);
        assert!(metrics(0).iter().all(|metric| metric["name"] != "hw.temperature"));
    }

    #[test]
    fn metrics_of_one_name_have_one_unit_and_kind() {
        let all = Metric::ALL.map(of_metric).into_iter().chain(Figure::ALL.map(of_figure));
        let mut known: BTreeMap<&str, Named> = BTreeMap::new();
        for named in all {
            let first = known.entry(named.0).or_insert(named);
            assert!((first.1, first.2) == (named.1, named.2), "{}", named.0);
        }
    }
}
