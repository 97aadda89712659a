//! The metrics of a rank, and their units.

use std::fmt;

/// Largest number of a run's gauges that are followed.
pub const MOST_GAUGES: usize = 32;
/// Prefix of the keys of gauges; the name that the program gave follows it.
pub const GAUGE: &str = "gauge:";

/// A metric of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Metric {
    /// Number of steps that ended.
    Steps,
    /// Steps per second.
    StepsPerSecond,
    /// Duration of the last step.
    StepTime,
    /// Time since the last step.
    SinceStep,
    /// Resident memory in bytes.
    Rss,
    /// Live heap bytes.
    Heap,
    /// Number of cores that the rank's threads used.
    CpuCores,
    /// Share of time that the rank's devices were busy.
    GpuUtilization,
    /// Memory in use on the rank's devices, in bytes.
    GpuMemory,
    /// Power of the rank's devices, in watts.
    GpuPower,
    /// Number of events lost.
    Lost,
}

impl Metric {
    /// All metrics in order.
    pub const ALL: [Metric; 11] = [
        Metric::Steps,
        Metric::StepsPerSecond,
        Metric::StepTime,
        Metric::SinceStep,
        Metric::Rss,
        Metric::Heap,
        Metric::CpuCores,
        Metric::GpuUtilization,
        Metric::GpuMemory,
        Metric::GpuPower,
        Metric::Lost,
    ];

    /// Returns the metric's index in [`Self::ALL`].
    pub fn place(self) -> usize {
        self as usize
    }

    /// Returns the key that JSON and options use.
    pub fn key(self) -> &'static str {
        match self {
            Metric::Steps => "steps",
            Metric::StepsPerSecond => "steps_per_second",
            Metric::StepTime => "step_ns",
            Metric::SinceStep => "since_step_ns",
            Metric::Rss => "rss_bytes",
            Metric::Heap => "heap_bytes",
            Metric::CpuCores => "cpu_cores",
            Metric::GpuUtilization => "gpu_utilization",
            Metric::GpuMemory => "gpu_memory_used_bytes",
            Metric::GpuPower => "gpu_power_watts",
            Metric::Lost => "lost",
        }
    }

    /// Returns the metric's unit.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::Steps | Metric::Lost => "count",
            Metric::StepsPerSecond => "per_second",
            Metric::StepTime | Metric::SinceStep => "ns",
            Metric::Rss | Metric::Heap | Metric::GpuMemory => "bytes",
            Metric::CpuCores => "none",
            Metric::GpuUtilization => "share",
            Metric::GpuPower => "watts",
        }
    }

    /// Describes the metric for people.
    pub fn about(self) -> &'static str {
        match self {
            Metric::Steps => "training steps that ended",
            Metric::StepsPerSecond => "training steps a second, last 10 s",
            Metric::StepTime => "last whole training step",
            Metric::SinceStep => "time since the last training step ended",
            Metric::Rss => "resident memory, sum over the processes",
            Metric::Heap => "live heap, sum over the processes",
            Metric::CpuCores => "cores that threads used, by CPU samples of the last seconds",
            Metric::GpuUtilization => "share of time that kernels ran, mean over the devices",
            Metric::GpuMemory => "device memory in use by all processes, sum over the devices",
            Metric::GpuPower => "power of the boards, sum over the devices",
            Metric::Lost => "events known to be lost",
        }
    }

    /// Explains why no rank has a value.
    pub fn missing(self) -> &'static str {
        match self {
            Metric::Steps | Metric::StepsPerSecond | Metric::StepTime | Metric::SinceStep => {
                "no step was recorded: `tprof.step()`, NVTX ranges `step N` or PyTorch's ranges show them"
            }
            Metric::Rss => "no process was measured yet",
            Metric::Heap => "no process has exact totals of its whole life",
            Metric::CpuCores => "no CPU sample of the last seconds is in the files",
            Metric::GpuUtilization | Metric::GpuMemory | Metric::GpuPower => {
                "no device was measured"
            }
            Metric::Lost => "no process has stated its losses yet",
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// Returns the unit of a gauge, which the end of its name tells.
pub fn unit_of(name: &str) -> &'static str {
    let ends = [
        ("_ns", "ns"),
        ("_bytes", "bytes"),
        ("_per_second", "per_second"),
        ("_share", "share"),
        ("_utilization", "share"),
        ("_watts", "watts"),
        ("_count", "count"),
    ];
    ends.into_iter().find(|(end, _)| name.ends_with(end)).map_or("none", |(_, unit)| unit)
}
