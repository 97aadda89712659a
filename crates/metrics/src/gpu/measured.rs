//! Attributes the samples of a device's counters (`--gpu-metrics`) to kernels.
//!
//! The counters are those of the whole device. So only samples count that lie wholly within a kernel
//! while nothing else ran there, after the time by which the two clocks may differ was taken off at
//! both ends. If several ranks use a device, nobody knows whose kernel a sample is of.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tprof_document::{Cell, Column, RankContext, Table, Unit};
use tprof_rank::base::intervals::Interval;
use tprof_rank::base::names::{Names, short};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{Class, RankTrace};
use tprof_trace::model::counter::*;

use crate::gpu::report_gpu::{DeviceReadings, means, of_file};

/// The mean of a counter over samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mean {
    area: f64,
    time_ns: u64,
}

impl Mean {
    fn add(&mut self, value: f64, time_ns: u64) {
        self.area += value * time_ns as f64;
        self.time_ns += time_ns;
    }
}

/// What samples tell of the runs of one kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasuredKernel {
    /// Number of runs, and the sum of their durations, ns.
    runs: u64,
    total_ns: u64,
    /// Number of runs within which a sample lies.
    sampled_runs: u64,
    means: BTreeMap<&'static str, Mean>,
}

impl MeasuredKernel {
    fn add(&mut self, other: &MeasuredKernel) {
        self.runs += other.runs;
        self.total_ns += other.total_ns;
        self.sampled_runs += other.sampled_runs;
        for (name, mean) in &other.means {
            let sum = self.means.entry(name).or_default();
            sum.area += mean.area;
            sum.time_ns += mean.time_ns;
        }
    }

    /// Returns the mean of a counter over the samples; `None` if there are none.
    pub fn mean(&self, name: &str) -> Option<f64> {
        let mean = self.means.get(name).filter(|mean| mean.time_ns > 0)?;
        Some(mean.area / mean.time_ns as f64)
    }

    /// Returns the bytes a second that went to and from the device's memory.
    pub fn dram_bytes_per_second(&self) -> Option<f64> {
        Some(self.mean(GPU_DRAM_READ)? + self.mean(GPU_DRAM_WRITTEN)?)
    }

    /// The samples' share of the kernel's time.
    pub fn sampled_share(&self) -> f64 {
        self.sampled_ns() as f64 / self.total_ns.max(1) as f64
    }

    /// Time of the samples, ns.
    pub fn sampled_ns(&self) -> u64 {
        self.means.values().map(|mean| mean.time_ns).max().unwrap_or(0)
    }
}

/// The kernels of one device by name.
type DeviceKernels = BTreeMap<Arc<str>, MeasuredKernel>;

/// What samples tell of a rank's kernels.
#[derive(Clone, Debug, Default)]
pub struct RankMeasured {
    /// For each sampled device, its UUID and the kernels by name.
    devices: BTreeMap<String, DeviceKernels>,
}

/// Attributes the samples of a rank's devices to its kernels in the steps; without steps, to all.
pub fn of_rank(rank: &RankTrace<'_>, names: &Names) -> RankMeasured {
    let mut found = RankMeasured::default();
    if !rank.file.properties().any(|(key, _)| key == "gpu_metrics") {
        return found;
    }
    let read = of_file(rank.file);
    let mut work: FxHashMap<Option<u32>, Vec<usize>> = FxHashMap::default();
    for (at, row) in rank.work.iter().enumerate() {
        work.entry(rank.device_of(row)).or_default().push(at);
    }
    let judged = rank.is_judged();
    for (device, mut rows) in work {
        let Some(readings) = DeviceReadings::of_rank(rank.file, &read, device) else { continue };
        let Some(metrics) = readings.metrics.filter(|metrics| metrics.has_samples()) else {
            continue;
        };
        rows.sort_unstable_by_key(|at| rank.work[*at].start_ns);
        let margin_ns = metrics.uncertain_ns();
        let mut kernels = DeviceKernels::new();
        let mut alone: Vec<(Interval, Arc<str>)> = Vec::new();
        let mut until_ns = 0;
        for (place, at) in rows.iter().enumerate() {
            let row = &rank.work[*at];
            let time = row.interval();
            let next_ns = rows.get(place + 1).map_or(u64::MAX, |next| rank.work[*next].start_ns);
            let is_alone = until_ns <= time.start && next_ns >= time.end;
            until_ns = until_ns.max(time.end);
            if !judged[*at] || row.class == Class::Memory {
                continue;
            }
            let name = names.get(&rank.work_name(row));
            let kernel = kernels.entry(Arc::clone(&name)).or_default();
            (kernel.runs, kernel.total_ns) = (kernel.runs + 1, kernel.total_ns + row.duration_ns);
            if is_alone && time.length() > 2 * margin_ns {
                alone.push((Interval::new(time.start + margin_ns, time.end - margin_ns), name));
            }
        }
        let mut hit = vec![false; alone.len()];
        for counter in means() {
            let mut at = 0;
            for (sample, value) in readings.samples_of(counter) {
                while alone.get(at).is_some_and(|(time, _)| time.end < sample.end) {
                    at += 1;
                }
                let Some((time, name)) = alone.get(at) else { break };
                if time.start <= sample.start && metrics.tells(counter, sample.start) {
                    hit[at] = true;
                    let means = &mut kernels.entry(Arc::clone(name)).or_default().means;
                    means.entry(counter).or_default().add(value, sample.length());
                }
            }
        }
        for ((_, name), _) in alone.iter().zip(hit).filter(|(_, hit)| *hit) {
            kernels.entry(Arc::clone(name)).or_default().sampled_runs += 1;
        }
        found.devices.insert(metrics.device().to_owned(), kernels);
    }
    found
}

/// What samples tell of the kernels of all ranks.
#[derive(Clone, Debug, Default)]
pub struct AllMeasured {
    /// The kernels by name.
    pub kernels: DeviceKernels,
    /// Whether any device was sampled.
    pub is_sampled: bool,
    /// A sentence on devices that several ranks use.
    pub shared: Option<String>,
}

/// Adds up what samples tell of the kernels of all ranks. Leaves out devices that several ranks use.
pub fn join<'a>(parts: impl Iterator<Item = (&'a RankContext, &'a RankMeasured)>) -> AllMeasured {
    let mut by_device: BTreeMap<&str, Vec<(&RankContext, &DeviceKernels)>> = BTreeMap::new();
    for (at, part) in parts {
        for (device, kernels) in &part.devices {
            by_device.entry(device).or_default().push((at, kernels));
        }
    }
    let mut all = AllMeasured { is_sampled: !by_device.is_empty(), ..AllMeasured::default() };
    let mut sharing: Vec<&str> = Vec::new();
    for ranks in by_device.into_values() {
        match ranks[..] {
            [(_, kernels)] => {
                for (name, kernel) in kernels {
                    all.kernels.entry(Arc::clone(name)).or_default().add(kernel);
                }
            }
            _ => sharing.extend(ranks.iter().map(|(at, _)| at.label.as_str())),
        }
    }
    all.shared = (!sharing.is_empty()).then(|| {
        format!(
            "samples are not attributed to the kernels of {}, because they use the same GPU",
            sharing.join(", ")
        )
    });
    all
}

const NO_SAMPLE: &str =
    "its runs are shorter than a sample, or other work ran on the GPU at the same time";
const NOT_COUNTED: &str = "the GPU's samples have no such counter";

/// Makes the table of what the units of devices did in each kernel.
pub fn table(all: &AllMeasured) -> Table {
    let columns = vec![
        Column::new("total_ns", "total", Unit::Duration),
        Column::new("runs", "runs", Unit::Count),
        Column::new("sampled_runs", "sampled", Unit::Count),
        Column::data("sampled_ns", Unit::Duration),
        Column::new("sampled_share", "of time", Unit::Share),
        Column::new("sm_active", "SMs", Unit::Share),
        Column::new("sm_occupancy", "warps", Unit::Share),
        Column::new("tensor_active", "tensor", Unit::Share),
        Column::new("dram_bandwidth_utilization", "DRAM", Unit::Share),
        Column::new("dram_bytes_per_second", "DRAM bytes/s", Unit::BytesPerSecond),
        Column::data("dram_read_bytes_per_second", Unit::BytesPerSecond),
        Column::data("dram_written_bytes_per_second", Unit::BytesPerSecond),
        Column::data("fp32_active", Unit::Share),
        Column::data("fp64_active", Unit::Share),
        Column::data("fp16_active", Unit::Share),
        Column::data("integer_active", Unit::Share),
        Column::data("name", Unit::Name),
        Column::new("short_name", "name", Unit::Name),
    ];
    let why = all.shared.as_deref().filter(|_| all.kernels.is_empty());
    let mut table = Table::new("measured", "What the GPUs' units did in each kernel", columns)
        .about(
            "by samples of the GPUs' counters that lie wholly within a run of the kernel while \
             nothing else ran on its GPU; of time: the share of the kernel's time that they cover",
        )
        .empty(why.unwrap_or(match all.is_sampled {
            true => "the sampled GPUs ran none of the kernels",
            false => "the GPUs' counters were not sampled (--gpu-metrics)",
        }));
    let mut rows: Vec<_> = all.kernels.iter().collect();
    rows.sort_rows_by(|a, b| (b.1.total_ns, a.0).cmp(&(a.1.total_ns, b.0)));
    for (name, kernel) in rows {
        let sampled_ns = kernel.sampled_ns();
        let known = |value: Option<f64>| {
            Cell::known(value, if sampled_ns > 0 { NOT_COUNTED } else { NO_SAMPLE })
        };
        let mean = |counter: &str| known(kernel.mean(counter));
        table.row(vec![
            kernel.total_ns.into(),
            kernel.runs.into(),
            kernel.sampled_runs.into(),
            sampled_ns.into(),
            kernel.sampled_share().into(),
            mean(GPU_SM_ACTIVE),
            mean(GPU_SM_OCCUPANCY),
            mean(GPU_TENSOR_ACTIVE),
            mean(GPU_DRAM_BANDWIDTH),
            known(kernel.dram_bytes_per_second()),
            mean(GPU_DRAM_READ),
            mean(GPU_DRAM_WRITTEN),
            mean(GPU_FP32_ACTIVE),
            mean(GPU_FP64_ACTIVE),
            mean(GPU_FP16_ACTIVE),
            mean(GPU_INTEGER_ACTIVE),
            (&**name).into(),
            short(name).into(),
        ]);
    }
    table
}
