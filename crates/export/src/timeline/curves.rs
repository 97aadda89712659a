//! Adds curves below the lanes: memory of host and device, and other counters. Curves are
//! downsampled to their maxima, so that no peak is lost.

use std::collections::BTreeMap;
use std::convert::Infallible;

use serde_json::{Value, json};
use tprof_facts::counters::{CounterUnit, is_total, title};
use tprof_trace::model::{DeviceAllocation, ProcessEnd, ProcessIndex, counter};

use super::device_memory;
use super::processes::Processes;
use crate::counters::{Downsampler, heap, stretch_ns};
use crate::gpus::{Gpu, Gpus};
use crate::page::Payload;
use crate::rows::wanted;
use crate::{OpenRank, Window, Written};

/// A quantity over time. Values that are not whole numbers are stored in thousandths.
struct Curve {
    process: Option<usize>,
    /// The device, as the process numbers it.
    device: Option<u32>,
    name: String,
    unit: CounterUnit,
    /// Whether the quantity is a running total, which only rises.
    total: bool,
    scale: u64,
    points: Vec<(u64, u64)>,
}

/// Curves of all files.
#[derive(Default)]
pub(crate) struct Curves {
    all: Vec<Curve>,
}

impl Curves {
    /// Adds the curves of a file.
    pub fn file(&mut self, part: &OpenRank<'_>, written: &mut Written, processes: &mut Processes) {
        let Window { from_ns, to_ns } = part.window;
        let stretch_ns = stretch_ns(length_ns(part).min(to_ns - from_ns));
        self.heap(part, processes, stretch_ns);
        self.taken(part, processes, stretch_ns);
        self.device(part, written, processes, stretch_ns);
        self.counters(part, processes, stretch_ns);
    }

    fn heap(&mut self, part: &OpenRank<'_>, processes: &mut Processes, stretch_ns: u64) {
        let mut heaps: BTreeMap<ProcessIndex, Vec<(u64, u64)>> = BTreeMap::new();
        let drawn: Result<(), Infallible> =
            heap(&part.trace, stretch_ns, |process, time, bytes| {
                if part.window.holds(time) {
                    heaps.entry(process).or_default().push((part.since_start(time), bytes));
                }
                Ok(())
            });
        drawn.unwrap_or_else(|never| match never {});
        for (process, points) in heaps {
            let process = Some(processes.index(part, process));
            let name = "Host heap".to_owned();
            self.all.push(level(process, None, name, points));
        }
    }

    /// Adds the memory that processes have allocated on each device, by their calls. The level
    /// stays the same from one call to the next.
    fn taken(&mut self, part: &OpenRank<'_>, processes: &mut Processes, stretch_ns: u64) {
        for ((process, device), mut points) in device_memory::taken(&part.trace) {
            let last_bytes = points.last().map_or(0, |(_, bytes)| *bytes);
            let last_ns = part.trace.extent_ns().map_or(0, |(_, last_ns)| last_ns);
            match part.trace.process_end(process) {
                Some((end_ns, how)) if how != ProcessEnd::Exec => {
                    points.extend([(end_ns, last_bytes), (end_ns.saturating_add(1), 0)]);
                }
                _ => points.push((last_ns, last_bytes)),
            }
            let mut thin = Downsampler::new(stretch_ns);
            let mut kept = Vec::new();
            for (time_ns, bytes) in levels_within(&points, part.window) {
                kept.extend(thin.point(part.since_start(time_ns), bytes));
            }
            kept.extend(thin.rest());
            let process = Some(processes.index(part, process));
            self.all.push(level(process, Some(device), format!("GPU {device} memory taken"), kept));
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
        let mut curves: BTreeMap<Key, (Downsampler, Vec<(u64, u64)>)> = BTreeMap::new();
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
                    curves.entry(key).or_insert_with(|| (Downsampler::new(stretch_ns), Vec::new()));
                curve.1.extend(curve.0.point(part.since_start(row.time_ns), bytes));
            }
        }
        for ((process, device, name), (thin, mut points)) in curves {
            points.extend(thin.rest());
            let process = Some(processes.index(part, process));
            self.all.push(level(process, Some(device), format!("GPU {device} {name}"), points));
        }
    }

    fn counters(&mut self, part: &OpenRank<'_>, processes: &mut Processes, stretch_ns: u64) {
        type Key = (Option<ProcessIndex>, Option<Gpu>, u32);
        let gpus = Gpus::of(&part.trace);
        let mut curves: BTreeMap<Key, Vec<(u64, f64)>> = BTreeMap::new();
        for row in part.trace.counters() {
            // Power shows the same better than an energy that began long before the run. A value that
            // isn't a number says that nothing is known.
            if part.trace.name(row.name) == counter::GPU_ENERGY || !row.value.is_finite() {
                continue;
            }
            let key = (row.process, gpus.gpu(row), row.name.0);
            curves.entry(key).or_default().push((row.time_ns, row.value));
        }
        let last_ns = part.trace.extent_ns().map_or(0, |(_, last_ns)| last_ns);
        for ((process, gpu, name), mut points) in curves {
            let name = part.trace.name(tprof_trace::model::NameId(name));
            // These counters are written only when they change, so their last value is valid until
            // the end.
            if let Some((_, all)) = points.last().copied().filter(|_| is_total(name)) {
                points.push((last_ns, all));
            }
            let points = levels_within(&points, part.window);
            let whole = points.iter().all(|(_, value)| value.fract() == 0.0);
            let scale: u64 = if whole { 1 } else { 1000 };
            let mut thin = Downsampler::new(stretch_ns);
            let mut kept = Vec::new();
            for (time_ns, value) in points.into_iter().filter(|(_, value)| *value >= 0.0) {
                kept.extend(
                    thin.point(part.since_start(time_ns), (value * scale as f64).round() as u64),
                );
            }
            kept.extend(thin.rest());
            let device = match gpu {
                Some(Gpu::Seen(Some(of), device)) if Some(of) == process => Some(device),
                _ => None,
            };
            self.all.push(Curve {
                process: process.map(|process| processes.index(part, process)),
                device,
                name: match gpu {
                    Some(gpu) => format!("{} {}", gpu.label(), title(name)),
                    None => title(name).to_owned(),
                },
                unit: CounterUnit::of(name),
                total: is_total(name),
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
                "process": curve.process, "device": curve.device, "name": curve.name,
                "unit": word(curve.unit), "total": curve.total, "scale": curve.scale,
                "count": curve.points.len(),
            })
        });
        about.collect()
    }
}

/// Builds a curve of bytes.
fn level(
    process: Option<usize>,
    device: Option<u32>,
    name: String,
    points: Vec<(u64, u64)>,
) -> Curve {
    Curve { process, device, name, unit: CounterUnit::Bytes, total: false, scale: 1, points }
}

/// Returns the name of a unit that the page's script knows.
fn word(unit: CounterUnit) -> &'static str {
    match unit {
        CounterUnit::Bytes => "bytes",
        CounterUnit::Nanoseconds => "ns",
        CounterUnit::Share => "share",
        CounterUnit::Hertz => "Hz",
        CounterUnit::Watts => "W",
        CounterUnit::Joules => "J",
        CounterUnit::Celsius => "°C",
        CounterUnit::BytesPerSecond => "B/s",
        CounterUnit::Count => "count",
    }
}

/// Returns levels within a window, if each level is valid until the next: the level at the window's
/// beginning, each change, and the last level again at the window's end.
fn levels_within<V: Copy>(points: &[(u64, V)], window: Window) -> Vec<(u64, V)> {
    let begun = points.partition_point(|(time_ns, _)| *time_ns <= window.from_ns);
    let ended = points.partition_point(|(time_ns, _)| *time_ns < window.to_ns).max(begun);
    let before = begun.checked_sub(1).map(|at| (window.from_ns, points[at].1));
    let mut levels: Vec<(u64, V)> =
        before.into_iter().chain(points[begun..ended].to_vec()).collect();
    if let Some((_, level)) = levels.last().copied().filter(|_| ended < points.len()) {
        levels.push((window.to_ns, level));
    }
    levels
}

/// Returns the time from the first to the last device allocation, counter or heap event of a file.
/// Rows with a time of 0 (unknown) or the maximum (no end) are ignored.
fn length_ns(part: &OpenRank<'_>) -> u64 {
    let spans = part.trace.blocks::<DeviceAllocation>().flatten().map(|row| row.time_ns);
    let counters = part.trace.counters().iter().map(|row| row.time_ns);
    let heap = part.trace.heap_events().map(|event| event.time_ns);
    let ends = spans.chain(counters).chain(heap).filter(|&ns| ns > 0 && ns < u64::MAX);
    let range = ends.fold((u64::MAX, 0), |(first, last), ns| (first.min(ns), last.max(ns)));
    range.1.saturating_sub(range.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_from_before_the_window_is_valid_until_its_end() {
        let points = [(10, 1), (20, 2), (30, 3), (40, 0)];
        let within = |from_ns, to_ns| levels_within(&points, Window { from_ns, to_ns });
        assert_eq!(within(15, 35), [(15, 1), (20, 2), (30, 3), (35, 3)]);
        assert_eq!(within(21, 22), [(21, 2), (22, 2)]);
        assert_eq!(within(0, 15), [(10, 1), (15, 1)]);
        assert_eq!(within(35, 90), [(35, 3), (40, 0)]);
        assert_eq!(within(0, 5), []);
        assert_eq!(levels_within(&points, Window::ALL), points);
    }
}
