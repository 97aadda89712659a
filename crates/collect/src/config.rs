//! The options of a run, which launcher and collector share.

pub use crate::capture::{Capture, CaptureEnd, CaptureRange};
pub use tprof_sampler::{PerfEvent, StackMode};

use crate::schedule::{ScheduleUnit, Timetable};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use tprof_facts::units;
use tprof_wire::region::off;

/// The options of a run, with all defaults filled in.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Config {
    /// Run directory, absolute.
    pub output: PathBuf,
    /// What to do if the run directory already contains a run.
    #[serde(default)]
    pub if_exists: IfExists,
    /// The kinds of events that are recorded.
    pub activities: Vec<Activity>,
    /// How allocations are recorded.
    pub mem: MemMode,
    /// How stacks are taken.
    pub stacks: StackMode,
    /// CPU samples per second and thread.
    pub sample_rate: u32,
    /// Events of the processor or kernel that are counted in addition to time.
    pub counters: Vec<PerfEvent>,
    /// What NCCL reports in addition to its operations.
    #[serde(default)]
    pub nccl: Vec<NcclEvent>,
    /// How runs of CUDA graphs are recorded.
    pub cuda_graphs: GraphDetail,
    /// Whether hooks or CUPTI record CUDA calls that start work.
    #[serde(default)]
    pub cuda_calls: CallSource,
    /// How PyTorch's operators are recorded.
    #[serde(default)]
    pub operators: OperatorDetail,
    /// Whether calls of PyTorch's modules are named by the paths of the modules.
    #[serde(default)]
    pub modules: bool,
    /// The steps that PyTorch's own profiler records as well, if it is requested.
    #[serde(default)]
    pub kineto: Option<KinetoWindow>,
    /// Whether PyTorch's own log of `torch.compile` is stored with the run.
    #[serde(default)]
    pub compile: bool,
    /// Whether calls on files, pipes and sockets are recorded.
    #[serde(default)]
    pub io: bool,
    /// Period of samples of the instructions of GPU kernels, in cycles, as a power of 2; `None` if
    /// they are not sampled.
    #[serde(default)]
    pub gpu_stalls: Option<u32>,
    /// Time between readings of RSS, mapped bytes, live heap bytes and the cgroup.
    pub rss_interval: Duration,
    /// Time between readings of devices by NVML.
    pub gpu_interval: Duration,
    /// Time between samples of the devices' counters (PM sampling); `None` if they aren't sampled.
    #[serde(default)]
    pub gpu_metrics: Option<Duration>,
    /// Percent of the job's CPU time that recording may cost; what costs more is thinned. `None`
    /// without a limit.
    #[serde(default)]
    pub budget_percent: Option<f64>,
    /// What a thread does when its ring is full.
    pub on_full: OnFull,
    /// Directory in which unwind tables and symbols are cached for later runs; `None` if they
    /// aren't.
    #[serde(default)]
    pub table_cache: Option<PathBuf>,
    /// Recording stops when the run's files have this many bytes, if set.
    pub max_size: Option<u64>,
    /// Recording stops this long after it has begun, if set.
    pub duration: Option<Duration>,
    /// Recording begins this long after the start, if set.
    pub delay: Option<Duration>,
    /// Whether recording is off until `tprof ctl start`.
    pub paused: bool,
    /// The steps or seconds of the job that are recorded; `None` for all.
    #[serde(default)]
    pub schedule: Option<Timetable>,
    /// The range of the program that is recorded; `None` for everything.
    #[serde(default)]
    pub capture: Option<Capture>,
    /// Whether the run lasts until the last process of the job has ended, instead of the job's
    /// command.
    #[serde(default)]
    pub follow: bool,
    /// When the job counts as hanging, if anyone shall watch.
    #[serde(default)]
    pub on_hang: Option<OnHang>,
    /// Multiple of its usual time beyond which a step counts as slow, if anyone shall watch.
    #[serde(default)]
    pub on_slow_step: Option<f64>,
    /// How much of what happens is kept, if not all of it.
    #[serde(default)]
    pub keep: Option<Keep>,
    /// At which other events what is kept is written as a run of its own.
    #[serde(default)]
    pub dump_on: DumpOn,
    /// Whether arguments, paths and the environment are left out of the files.
    pub redact: bool,
    /// Directory in which the job was started, if it isn't the collector's own. The run's commit is
    /// that of this directory.
    #[serde(skip)]
    pub started_in: Option<PathBuf>,
    /// Command line of the job; empty if no command was launched.
    pub command: Vec<String>,
}

impl Config {
    /// Returns the schedule by which each process switches its own recording, if there is one.
    pub(crate) fn steps(&self) -> Option<Timetable> {
        self.schedule.filter(|of| of.unit != ScheduleUnit::Second)
    }

    /// Returns the schedule by which the session's recording is switched, if there is one.
    pub(crate) fn seconds(&self) -> Option<Timetable> {
        self.schedule.filter(|of| of.unit == ScheduleUnit::Second)
    }

    /// Whether an option switches the session's recording, and not each process its own.
    pub(crate) fn pauses_session(&self) -> bool {
        let timed = self.delay.is_some() || self.duration.is_some();
        self.paused || timed || self.seconds().is_some()
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

    /// Whether a schedule or capture limits recording to a part of the job.
    pub(crate) fn is_in_part(&self) -> bool {
        self.capture.is_some() || self.schedule.is_some()
    }

    /// Returns the option that limits recording to a part of the job.
    pub(crate) fn in_part_by(&self) -> &'static str {
        match self.capture {
            Some(_) => "--capture-range",
            None if self.schedule.is_some_and(|of| of.paired) => "--overhead paired",
            None => "--schedule",
        }
    }

    /// Returns how allocations are recorded: not at all unless memory is one of the activities.
    pub fn memory(&self) -> MemMode {
        match self.activities.contains(&Activity::Mem) {
            true => self.mem,
            false => MemMode::Off,
        }
    }
}

/// `--on-hang`: when the job counts as hanging, and what happens then.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct OnHang {
    /// Time without a step, an operation between ranks, and other work.
    pub after: Duration,
    /// Whether tprof ends the job then.
    pub stop: bool,
}

/// `--keep`: how much of what happens is kept, the last part of it. Of several limits, the one that
/// leaves least counts.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Keep {
    /// How long ago the oldest event that is kept may lie.
    pub time: Option<Duration>,
    /// Number of each rank's last steps that are kept.
    pub steps: Option<u32>,
    /// Largest size of what all files of a collector keep together.
    pub bytes: Option<u64>,
}

impl fmt::Display for Keep {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.time.map(units::exact_duration);
        let steps = self.steps.map(|steps| format!("steps={steps}"));
        let bytes = self.bytes.map(units::exact_size);
        let limits: Vec<String> = [time, steps, bytes].into_iter().flatten().collect();
        out.write_str(&limits.join(","))
    }
}

/// `--on`: events at which what is kept is written as a run of its own, besides slow steps and hangs.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct DumpOn {
    /// A process of a rank ends by a signal or with a status other than 0.
    pub error: bool,
    /// The host or a device has no memory left for the job.
    pub oom: bool,
    /// tprof gets this signal.
    pub signal: Option<i32>,
}

/// What to do if the run directory contains a run that this rank may not join.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum IfExists {
    /// Record into the next free name, for example `r1-2`.
    #[default]
    Rename,
    /// Record into it nevertheless.
    Join,
    /// Replace it. If the run is still being recorded, use the next free name instead.
    Force,
    /// Refuse to start.
    Fail,
}

/// A kind of events that can be recorded.
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
    /// Record each node of each run, which costs as much as if the node were launched by itself.
    Node,
}

/// `--cuda-calls`: whether hooks or CUPTI record the CUDA runtime's calls that start work.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum CallSource {
    /// CUPTI, because that way is tested on devices.
    #[default]
    Auto,
    /// CUPTI, which gives a call and the work that it starts the same number.
    Cupti,
    /// The hooks. Their calls are joined with CUPTI's records of work by their order.
    Hooks,
}

/// Default period of samples of the instructions of GPU kernels, as a power of 2: 0.6 ms at 1.7 GHz.
/// In this time each multiprocessor takes one sample, so a device with 132 of them takes about
/// 200,000 a second. A second of a kernel has enough of them to tell its dominant reason, and CUPTI's
/// threads have few to read.
pub const STALL_PERIOD: u32 = 20;
/// Periods that CUPTI's header permits, as powers of 2.
pub const STALL_PERIODS: std::ops::RangeInclusive<u32> = 5..=31;

/// `--operators`: what is recorded of PyTorch's operators and ranges.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum OperatorDetail {
    /// The same as `Names`, as long as that takes at most a hundredth of a thread's time. Otherwise
    /// only some steps are recorded.
    #[default]
    Auto,
    /// Names, times and autograd's sequence numbers.
    Names,
    /// The same as `Names`, with sizes and types of the inputs.
    Shapes,
    /// Operators are not recorded.
    Off,
}

/// `--kineto`: the steps for which PyTorch's own profiler runs, in each process that trains.
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

/// The values of `--nccl`. Each stands for something that is recorded of NCCL besides its operations.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum NcclEvent {
    /// NCCL's own log, which tells the transport of each connection.
    Log,
    /// Sends and receives of NCCL's proxy thread, with its waits.
    Proxy,
    /// Times of kernels per channel, which NCCL measures on the device.
    Kernels,
}

impl NcclEvent {
    /// Returns the option's value for this event.
    pub fn name(self) -> &'static str {
        match self {
            NcclEvent::Log => "log",
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
    /// Exact totals, and the stacks of a sample of the bytes.
    Sampled {
        /// Mean number of bytes from one sample to the next.
        interval: u64,
    },
    /// Allocations are not recorded.
    Off,
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
/// Allowed values of `rss_interval`. Shorter ones are useless, because the collector may sleep for
/// 10 ms.
pub const RSS_INTERVALS: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(60);
/// Default time between samples of the devices' counters: the longest at which a kernel that runs for
/// a millisecond has a sample that lies wholly within it.
pub const DEFAULT_GPU_METRICS: Duration = Duration::from_micros(500);
/// Allowed values of `gpu_metrics`. NVML's means have the longer ones.
pub const GPU_METRICS_INTERVALS: RangeInclusive<Duration> =
    Duration::from_micros(10)..=Duration::from_millis(100);
/// Allowed values of `gpu_interval`. Shorter ones are useless: a call to NVML takes milliseconds,
/// each device has several quantities, and utilization is the driver's mean over at least 1/6 s.
pub const GPU_INTERVALS: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);
