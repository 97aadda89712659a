//! The resolved options of a run, shared by launcher and collector.

pub use crate::capture::{Capture, CaptureEnd, CaptureRange};
use crate::schedule::{ScheduleUnit, Timetable};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use tprof_wire::region::off;

/// Resolved options of a run.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Config {
    /// Run directory, absolute.
    pub output: PathBuf,
    /// The way to continue if the run directory already holds a run.
    #[serde(default)]
    pub if_exists: IfExists,
    /// The sources that are recorded.
    pub activities: Vec<Activity>,
    /// How allocations are recorded.
    pub mem: MemMode,
    /// How stacks are taken.
    pub stacks: StackMode,
    /// CPU samples a second and thread.
    pub sample_rate: u32,
    /// Processor events that are counted in addition to time.
    pub counters: Vec<PerfEvent>,
    /// What NCCL reports in addition to its operations.
    #[serde(default)]
    pub nccl: Vec<NcclEvent>,
    /// How CUDA graphs that run are recorded.
    pub cuda_graphs: GraphDetail,
    /// Who records CUDA calls that start work.
    #[serde(default)]
    pub cuda_calls: CallSource,
    /// How PyTorch's operators are recorded.
    #[serde(default)]
    pub operators: OperatorDetail,
    /// Whether calls of PyTorch's modules are named by their paths.
    #[serde(default)]
    pub modules: bool,
    /// The window for which PyTorch's own profiler is requested.
    #[serde(default)]
    pub kineto: Option<KinetoWindow>,
    /// Whether PyTorch's own log of `torch.compile` is kept.
    #[serde(default)]
    pub compile: bool,
    /// Time between readings of RSS, mapped bytes, live heap and cgroup.
    pub rss_interval: Duration,
    /// Time between readings of devices by NVML.
    pub gpu_interval: Duration,
    /// The behaviour of a thread when its ring is full.
    pub on_full: OnFull,
    /// Directory in which unwind tables and symbols are cached between runs; `None` disables the
    /// cache.
    #[serde(default)]
    pub table_cache: Option<PathBuf>,
    /// Recording stops when the run's files have this many bytes.
    pub max_size: Option<u64>,
    /// Recording stops this long after it began.
    pub duration: Option<Duration>,
    /// Recording begins this long after the start.
    pub delay: Option<Duration>,
    /// Whether recording is off until `tprof ctl start`.
    pub paused: bool,
    /// The steps or seconds of the job that are recorded, if not all.
    #[serde(default)]
    pub schedule: Option<Timetable>,
    /// The range of the program that is recorded, if not everything.
    #[serde(default)]
    pub capture: Option<Capture>,
    /// Whether the run lasts until the last process of the job has ended, and not only its command.
    #[serde(default)]
    pub follow: bool,
    /// Whether arguments, paths and environment are left out.
    pub redact: bool,
    /// Directory in which the job was started, if it is not the collector's own. It determines the
    /// commit.
    #[serde(skip)]
    pub started_in: Option<PathBuf>,
    /// Command line; empty if the run was attached by hand.
    pub command: Vec<String>,
}

impl Config {
    /// Returns the schedule by which each process switches its own recording.
    pub(crate) fn steps(&self) -> Option<Timetable> {
        self.schedule.filter(|of| of.unit != ScheduleUnit::Second)
    }

    /// Returns the schedule by which the session's recording is switched.
    pub(crate) fn seconds(&self) -> Option<Timetable> {
        self.schedule.filter(|of| of.unit == ScheduleUnit::Second)
    }

    /// The reasons in [`off`] that hold while the session's recording is off. Live bytes are counted
    /// only between the cycles of a schedule in seconds: a cycle begins with what is live.
    pub(crate) fn session_off(&self) -> u32 {
        off::SESSION | if self.seconds().is_some() { 0 } else { off::UNCOUNTED }
    }

    /// Whether each process switches its own recording.
    pub(crate) fn switches_by_process(&self) -> bool {
        self.capture.is_some() || self.steps().is_some()
    }

    /// Whether only a part of the job is recorded, which the job's own progress determines.
    pub(crate) fn is_in_part(&self) -> bool {
        self.capture.is_some() || self.schedule.is_some()
    }

    /// Returns the option that determines which part of the job is recorded.
    pub(crate) fn in_part_by(&self) -> &'static str {
        match self.capture {
            Some(_) => "--capture-range",
            None if self.schedule.is_some_and(|of| of.paired) => "--overhead paired",
            None => "--schedule",
        }
    }

    /// Returns how allocations are recorded, which is not at all if they are not requested.
    pub fn memory(&self) -> MemMode {
        match self.activities.contains(&Activity::Mem) {
            true => self.mem,
            false => MemMode::Off,
        }
    }
}

/// The way to continue if the run directory holds a run that a rank may not share.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum IfExists {
    /// Record into the next free name next to it: `r1-2`.
    #[default]
    Rename,
    /// Record into it too.
    Join,
    /// Replace it; a run that is being recorded stays, and this one is renamed.
    Force,
    /// Refuse to start.
    Fail,
}

/// A source of events.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// Samples of CPU time.
    Cpu,
    /// GPU work and CUDA calls.
    Gpu,
    /// Allocations and mappings.
    Mem,
    /// Collectives and other communication.
    Comm,
    /// Ranges of NVTX.
    Nvtx,
}

/// `--cuda-graphs`: what is recorded of CUDA graphs that run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum GraphDetail {
    /// Record each run of a graph as a whole, where CUPTI can.
    #[default]
    Graph,
    /// Record each node of each run, which costs as much as launching it by itself.
    Node,
}

/// `--cuda-calls`: who records calls of the CUDA runtime's that start work.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum CallSource {
    /// CUPTI, because that is tested on devices.
    #[default]
    Auto,
    /// CUPTI, which gives a call and its work the same number.
    Cupti,
    /// The hooks. Their calls are joined with CUPTI's records of the work by their order.
    Hooks,
}

/// `--operators`: what is recorded of PyTorch's operators and ranges.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum OperatorDetail {
    /// Like `Names`, as long as it takes at most a hundredth of a thread's time.
    #[default]
    Auto,
    /// Names, times and autograd's sequence numbers.
    Names,
    /// Like `Names`, with sizes and types of the inputs.
    Shapes,
    /// Operators are not recorded.
    Off,
}

/// `--kineto`: the window for which PyTorch's own profiler is requested in each process that
/// trains.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct KinetoWindow {
    /// Number of steps.
    pub steps: u32,
    /// Whether Python's functions and modules are recorded.
    pub stacks: bool,
    /// Whether sizes and types of operators' inputs are recorded.
    pub shapes: bool,
}

impl Default for KinetoWindow {
    fn default() -> KinetoWindow {
        KinetoWindow { steps: 3, stacks: true, shapes: true }
    }
}

/// The values of `--nccl`: what NCCL's profiler plugin records in addition to operations, at a
/// higher cost.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum NcclEvent {
    /// The proxy thread's sends and receives, with its waits.
    Proxy,
    /// Times of kernels by channel, which NCCL measures on the device.
    Kernels,
}

impl NcclEvent {
    /// Returns the option's value for this event.
    pub fn name(self) -> &'static str {
        match self {
            NcclEvent::Proxy => "proxy",
            NcclEvent::Kernels => "kernels",
        }
    }
}

/// The values of `--mem`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum MemMode {
    /// Every allocation and free.
    Exact,
    /// Exact totals, stacks sampled by bytes.
    Sampled {
        /// Mean bytes between samples.
        interval: u64,
    },
    /// Allocations are not recorded.
    Off,
}

/// The values of `--stacks`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum StackMode {
    /// Unwind rows; frame pointers where the rows permit them.
    Auto,
    /// Only frame pointers.
    Fp,
    /// The same as `Auto`.
    Dwarf,
    /// Like `Auto`, and the stacks of allocations have the frames of Python's functions too.
    Python,
    /// Stacks are not taken.
    Off,
}

/// `--counters`: events that the processor or the kernel counts, named as `perf
/// list` names them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[serde(rename_all = "kebab-case")]
pub enum PerfEvent {
    /// Cycles of the processor.
    Cycles,
    /// Instructions that it finished.
    Instructions,
    /// References to the last-level cache.
    CacheReferences,
    /// References that the last-level cache could not answer.
    CacheMisses,
    /// Branch instructions that ran.
    Branches,
    /// Branches that were mispredicted.
    BranchMisses,
    /// Page faults, including the first use of a page.
    PageFaults,
    /// Page faults for which a page had to be read from disk.
    MajorFaults,
}

impl PerfEvent {
    /// All events, with their names.
    pub const ALL: [(&'static str, PerfEvent); 8] = [
        ("cycles", PerfEvent::Cycles),
        ("instructions", PerfEvent::Instructions),
        ("cache-references", PerfEvent::CacheReferences),
        ("cache-misses", PerfEvent::CacheMisses),
        ("branches", PerfEvent::Branches),
        ("branch-misses", PerfEvent::BranchMisses),
        ("page-faults", PerfEvent::PageFaults),
        ("major-faults", PerfEvent::MajorFaults),
    ];
    /// The events that are counted by default. They show how much the processor does in a cycle,
    /// and how well its cache works.
    pub const STANDARD: [PerfEvent; 4] = [
        PerfEvent::Cycles,
        PerfEvent::Instructions,
        PerfEvent::CacheReferences,
        PerfEvent::CacheMisses,
    ];

    /// Returns the option's value for this event.
    pub fn name(self) -> &'static str {
        PerfEvent::ALL.iter().find(|(_, event)| *event == self).map_or("", |(name, _)| name)
    }
}

/// The values of `--on-full`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum OnFull {
    /// Wait for a limited time, then drop records and count them.
    Wait,
    /// Drop records at once and count them.
    Drop,
}

/// Default mean number of bytes between samples, the same as in jemalloc and heapprofd.
pub const DEFAULT_SAMPLE_INTERVAL: u64 = 512 << 10;

/// Default time between readings of RSS and cgroup.
pub const DEFAULT_RSS_INTERVAL: Duration = Duration::from_millis(100);
/// Default time between readings of NVML.
pub const DEFAULT_GPU_INTERVAL: Duration = Duration::from_millis(500);
/// Allowed values of `rss_interval`: the collector sleeps 10 ms at a time.
pub const RSS_INTERVALS: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(60);
/// Allowed values of `gpu_interval`: a call of NVML takes milliseconds, a device has several
/// quantities, and utilisation is the driver's mean over at least 1/6 s.
pub const GPU_INTERVALS: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);
