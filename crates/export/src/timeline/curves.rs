//! Curves below the lanes: memory of host and device, and other counters. Each is
//! thinned to its maxima, so that no peak is lost.

use std::collections::BTreeMap;
use std::convert::Infallible;

use serde_json::{Value, json};
use tprof_trace::model::{DeviceAllocation, ProcessIndex, counter};

use super::processes::Processes;
use crate::counters::{Thin, heap, stretch};
use crate::gpus::{Gpu, Gpus};
use crate::page::Payload;
use crate::rows::wanted;
use crate::{OpenRank, Written};

/// A quantity over time, in thousandths where it is no whole number.
struct Curve {
    process: Option<usize>,
    name: String,
    unit: &'static str,
    scale: u64,
    points: Vec<(u64, u64)>,
}

/// Curves of all files.
#[derive(Default)]
pub(crate) struct Curves {
    all: Vec<Curve>,
}

impl Curves {
    /// Adds those of a file.
    pub fn file(&mut self, part: &OpenRank<'_>, written: &mut Written, processes: &mut Processes) {
        let stretch_ns = stretch(length_ns(part));
        self.heap(part, processes, stretch_ns);
        self.device(part, written, processes, stretch_ns);
        self.counters(part, processes, stretch_ns);
    }

    fn heap(&mut self, part: &OpenRank<'_>, processes: &mut Processes, stretch_ns: u64) {
        let mut heaps: BTreeMap<ProcessIndex, Vec<(u64, u64)>> = BTreeMap::new();
        let drawn: Result<(), Infallible> =
            heap(&part.trace, stretch_ns, |process, time, bytes| {
                if part.window.holds(time) {
                    heaps.entry(process).or_default().push((part.at(time), bytes));
                }
                Ok(())
            });
        drawn.unwrap_or_else(|never| match never {});
        for (process, points) in heaps {
            let process = Some(processes.index(part, process));
            let name = "Host heap".to_owned();
            self.all.push(Curve { process, name, unit: "bytes", scale: 1, points });
        }
    }

    fn device(
        &mut self,
        part: &OpenRank<'_>,
        written: &mut Written,
        processes: &mut Processes,
        stretch_ns: u64,
    ) {
        type Key = (ProcessIndex, u32, &'static str);
        let mut curves: BTreeMap<Key, (Thin, Vec<(u64, u64)>)> = BTreeMap::new();
        for row in wanted::<DeviceAllocation>(part, written) {
            let Some(device) = row.device else { continue };
            let totals = [
                ("memory in use", row.total_allocated_bytes),
                ("memory held", row.total_reserved_bytes),
            ];
            for (name, bytes) in totals {
                let Some(bytes) = bytes else { continue };
                let key = (row.process, device, name);
                let curve =
                    curves.entry(key).or_insert_with(|| (Thin::new(stretch_ns), Vec::new()));
                curve.1.extend(curve.0.point(part.at(row.time_ns), bytes));
            }
        }
        for ((process, device, name), (thin, mut points)) in curves {
            points.extend(thin.rest());
            let process = Some(processes.index(part, process));
            let name = format!("GPU {device} {name}");
            self.all.push(Curve { process, name, unit: "bytes", scale: 1, points });
        }
    }

    fn counters(&mut self, part: &OpenRank<'_>, processes: &mut Processes, stretch_ns: u64) {
        type Key = (Option<ProcessIndex>, Option<Gpu>, u32);
        let gpus = Gpus::of(&part.trace);
        let mut curves: BTreeMap<Key, Vec<(u64, f64)>> = BTreeMap::new();
        for row in part.trace.counters().iter().filter(|row| part.window.holds(row.time_ns)) {
            let key = (row.process, gpus.gpu(row), row.name.0);
            curves.entry(key).or_default().push((part.at(row.time_ns), row.value));
        }
        for ((process, gpu, name), points) in curves {
            let name = part.trace.name(tprof_trace::model::NameId(name));
            let whole = points.iter().all(|(_, value)| value.fract() == 0.0);
            let scale: u64 = if whole { 1 } else { 1000 };
            let mut thin = Thin::new(stretch_ns);
            let mut kept = Vec::new();
            for (time_ns, value) in points.into_iter().filter(|(_, value)| *value >= 0.0) {
                kept.extend(thin.point(time_ns, (value * scale as f64).round() as u64));
            }
            kept.extend(thin.rest());
            self.all.push(Curve {
                process: process.map(|process| processes.index(part, process)),
                name: title(name, gpu),
                unit: if name.ends_with("_bytes") { "bytes" } else { "count" },
                scale,
                points: kept,
            });
        }
    }

    /// Packs the points, curve after curve.
    pub fn pack(self, payload: &mut Payload) -> Vec<Value> {
        let points = || self.all.iter().flat_map(|curve| &curve.points);
        payload.differences("curveTime", &points().map(|point| point.0).collect::<Vec<u64>>());
        payload.differences("curveValue", &points().map(|point| point.1).collect::<Vec<u64>>());
        let about = self.all.iter().map(|curve| {
            json!({
                "process": curve.process, "name": curve.name, "unit": curve.unit,
                "scale": curve.scale, "count": curve.points.len(),
            })
        });
        about.collect()
    }
}

/// How long a file's device allocations, counters and heap events go on. What
/// has no end, or began at no known time, would not show that.
fn length_ns(part: &OpenRank<'_>) -> u64 {
    let spans = part.trace.blocks::<DeviceAllocation>().flatten().map(|row| row.time_ns);
    let counters = part.trace.counters().iter().map(|row| row.time_ns);
    let heap = part.trace.heap_events().map(|event| event.time_ns);
    let ends = spans.chain(counters).chain(heap).filter(|&ns| ns > 0 && ns < u64::MAX);
    let range = ends.fold((u64::MAX, 0), |(first, last), ns| (first.min(ns), last.max(ns)));
    range.1.saturating_sub(range.0)
}

/// A counter's name for people.
fn title(name: &str, gpu: Option<Gpu>) -> String {
    let title = match name {
        counter::RSS_BYTES => "Resident memory",
        counter::PSS_BYTES => "Resident memory, shared pages divided",
        counter::MAPPED_BYTES => "Mapped memory",
        counter::HEAP_BYTES => "Host heap, sampled",
        counter::READ_BYTES => "Read by calls",
        counter::WRITTEN_BYTES => "Written by calls",
        counter::STORAGE_READ_BYTES => "Read from storage",
        counter::STORAGE_WRITTEN_BYTES => "Written to storage",
        counter::CGROUP_BYTES => "Memory of the cgroup",
        counter::CGROUP_CACHE_BYTES => "Page cache of the cgroup, near its limit",
        counter::CGROUP_LIMIT_BYTES => "Memory limit of the cgroup",
        counter::CGROUP_OOM_KILLS => "OOM kills",
        counter::HOST_BUSY_CORES => "Busy processors of the host",
        counter::CGROUP_THROTTLED_NS => "Time that the cgroup's CPU limit took",
        other => other,
    };
    match gpu {
        Some(gpu) => format!("{} {title}", gpu.label()),
        None => title.to_owned(),
    }
}
