//! Stores the state of a rank other than its steps: processes, memory, devices, and gauges that the
//! program sets.

use std::collections::{BTreeMap, VecDeque};
use tprof_facts::units;
use tprof_trace::model::{
    Counter, Process, ProcessEnd, ProcessIndex, SampleMoment, ThreadState, counter,
};

use crate::metric::{MOST_GAUGES, Metric};

/// Largest number of processes of a file to follow at once.
const MOST_PROCESSES: usize = 4096;
/// Number of seconds over which the number of cores in use is computed.
const CORES_OF: u64 = 3;
/// Samples older than this many seconds say nothing about how many cores are in use now.
const CORES_FRESH: u64 = 8;
const SECOND_NS: u64 = 1_000_000_000;

/// A running process.
#[derive(Clone, Debug, Default)]
pub struct Running {
    /// Its process id.
    pub pid: u32,
    /// Name of its program.
    pub program: String,
    /// When it began.
    pub start_ns: u64,
    /// Whether its parent was not among the running processes of the file.
    pub is_root: bool,
    /// Whether an event announced its beginning.
    pub is_announced: bool,
    rss: Option<f64>,
    heap: Option<f64>,
}

/// Last readings of a device.
#[derive(Clone, Copy, Debug, Default)]
struct DeviceReading {
    utilization: Option<f64>,
    memory: Option<f64>,
    power: Option<f64>,
}

/// Readings of one rank.
#[derive(Debug, Default)]
pub struct Readings {
    running: BTreeMap<ProcessIndex, Running>,
    has_begun: bool,
    /// The worst end among the root processes that have ended (killed is worse than exited).
    ended: Option<ProcessEnd>,
    devices: BTreeMap<u32, DeviceReading>,
    gauges: BTreeMap<String, f64>,
    /// CPU time by second: the second, and the nanoseconds that threads ran in it.
    cores: VecDeque<(u64, u64)>,
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// Value of a metric that tprof defines.
    Of(Metric, f64),
    /// Value of a gauge that the program sets: name and value.
    Gauge(String, f64),
}

impl Readings {
    /// Adds a process image.
    pub fn process(&mut self, row: &Process, program: String, is_announced: bool) {
        self.has_begun = true;
        let is_root = !self.running.values().any(|other| other.pid == row.parent);
        if self.running.len() < MOST_PROCESSES {
            let (pid, start_ns) = (row.pid, row.start_ns);
            let new =
                Running { pid, program, start_ns, is_root, is_announced, ..Running::default() };
            self.running.insert(row.process, new);
        }
    }

    /// Removes a process that has ended, and returns it.
    pub fn process_end(&mut self, process: ProcessIndex, end: ProcessEnd) -> Option<Running> {
        let gone = self.running.remove(&process)?;
        if gone.is_root && end != ProcessEnd::Exec {
            self.ended = Some(match self.ended {
                Some(before) if badness(before) >= badness(end) => before,
                _ => end,
            });
        }
        Some(gone)
    }

    /// Returns the processes that began before a moment and were not announced yet, and marks them
    /// as announced.
    pub fn announce(&mut self, before_ns: u64) -> Vec<Running> {
        let new =
            self.running.values_mut().filter(|of| !of.is_announced && of.start_ns < before_ns);
        let announced = new.map(|process| {
            process.is_announced = true;
            process.clone()
        });
        announced.collect()
    }

    /// Returns the number of running processes.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns a running process.
    pub fn process_of(&self, process: ProcessIndex) -> Option<&Running> {
        self.running.get(&process)
    }

    /// Describes how the rank ended; `None` while one of its processes is running.
    pub fn ended(&self) -> Option<String> {
        (self.has_begun && self.running.is_empty()).then(|| describe_end(self.ended))
    }

    /// Stores a counter's value, and returns the rank's reading that it changes.
    pub fn counter(&mut self, row: &Counter, name: &str) -> Option<Reading> {
        if let Some(device) = row.device.filter(|_| row.process.is_none()) {
            return self.device(device, name, row.value);
        }
        match (name, row.process) {
            (counter::RSS_BYTES, Some(process)) => {
                self.running.get_mut(&process)?.rss = Some(row.value);
                Some(Reading::Of(Metric::Rss, self.rss()?))
            }
            (counter::HEAP_BYTES, Some(process)) => {
                self.running.get_mut(&process)?.heap = Some(row.value);
                Some(Reading::Of(Metric::Heap, self.heap()?))
            }
            (name, Some(_)) if !counter::OWN.contains(&name) => {
                if self.gauges.len() >= MOST_GAUGES && !self.gauges.contains_key(name) {
                    return None;
                }
                self.gauges.insert(name.to_owned(), row.value);
                Some(Reading::Gauge(name.to_owned(), row.value))
            }
            _ => None,
        }
    }

    fn device(&mut self, device: u32, name: &str, value: f64) -> Option<Reading> {
        /// Largest number of devices to store; hosts have fewer.
        const MOST_DEVICES: usize = 64;
        if self.devices.len() >= MOST_DEVICES && !self.devices.contains_key(&device) {
            return None;
        }
        let of = self.devices.entry(device).or_default();
        let metric = match name {
            counter::GPU_UTILIZATION => {
                of.utilization = Some(value);
                Metric::GpuUtilization
            }
            counter::GPU_MEMORY_BYTES => {
                of.memory = Some(value);
                Metric::GpuMemory
            }
            counter::GPU_POWER => {
                of.power = Some(value);
                Metric::GpuPower
            }
            _ => return None,
        };
        Some(Reading::Of(metric, self.value(metric)?))
    }

    /// Adds the CPU time of samples of running threads.
    pub fn samples(&mut self, rows: &[SampleMoment]) {
        for row in rows.iter().filter(|row| row.state == ThreadState::Running) {
            let second = row.time_ns / SECOND_NS;
            match self.cores.iter_mut().rev().find(|(of, _)| *of == second) {
                Some((_, ns)) => *ns = ns.saturating_add(row.weight_ns),
                None => self.cores.push_back((second, row.weight_ns)),
            }
        }
        let newest = self.cores.iter().map(|(second, _)| *second).max().unwrap_or(0);
        self.cores.retain(|(second, _)| second + CORES_OF + CORES_FRESH > newest);
    }

    /// Returns the mean number of cores that the rank's threads used in the last seconds of which
    /// all samples are in the file; `None` if the samples are too old.
    pub fn cores(&self, now_ns: u64) -> Option<f64> {
        let newest = self.cores.iter().map(|(second, _)| *second).max()?;
        // The newest second is not complete. If no second before `from` is stored, the first second
        // may be incomplete too.
        let first = self.cores.iter().map(|(second, _)| *second).min()?;
        let from = newest.saturating_sub(CORES_OF).max(first);
        let within = self.cores.iter().filter(|(of, _)| (from..newest).contains(of));
        let ns = within.fold(0, |sum: u64, (_, ns)| sum.saturating_add(*ns));
        let is_fresh = newest + CORES_FRESH >= now_ns / SECOND_NS;
        (is_fresh && from < newest).then(|| ns as f64 / ((newest - from) * SECOND_NS) as f64)
    }

    fn rss(&self) -> Option<f64> {
        sum(self.running.values().map(|process| process.rss))
    }

    fn heap(&self) -> Option<f64> {
        sum(self.running.values().map(|process| process.heap))
    }

    /// Returns the current value of a metric that counters provide; `None` for metrics that are
    /// computed otherwise.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        let devices = self.devices.values();
        match metric {
            Metric::Rss => self.rss(),
            Metric::Heap => self.heap(),
            Metric::GpuUtilization => {
                let known = devices.clone().filter(|of| of.utilization.is_some()).count();
                Some(sum(devices.map(|of| of.utilization))? / known as f64)
            }
            Metric::GpuMemory => sum(devices.map(|of| of.memory)),
            Metric::GpuPower => sum(devices.map(|of| of.power)),
            _ => None,
        }
    }

    /// Returns the last values of the gauges that the program sets, by name.
    pub fn gauges(&self) -> &BTreeMap<String, f64> {
        &self.gauges
    }
}

/// Sums the known values; `None` if no value is known.
fn sum(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.flatten().fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

fn badness(end: ProcessEnd) -> u8 {
    match end {
        ProcessEnd::Signal(_) => 3,
        ProcessEnd::Exited(0) | ProcessEnd::Exec => 0,
        ProcessEnd::Exited(_) => 2,
        ProcessEnd::Unknown => 1,
    }
}

/// Describes the end of a process in a word or two.
pub fn describe_end(end: Option<ProcessEnd>) -> String {
    match end {
        Some(ProcessEnd::Exited(status)) => format!("exit {status}"),
        Some(ProcessEnd::Signal(signal)) => units::signal(signal),
        Some(ProcessEnd::Exec) | Some(ProcessEnd::Unknown) | None => "ended".to_owned(),
    }
}
