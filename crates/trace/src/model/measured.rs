//! Quantities that were read now and then.

use super::ids::{NameId, ProcessIndex};

/// A measured quantity at one moment: RSS, mapped bytes, cgroup memory, queue lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counter {
    /// Time of the reading.
    pub time_ns: u64,
    /// Index of the process; `None` for the host or its cgroup.
    pub process: Option<ProcessIndex>,
    /// Number of the device, if the value is of one.
    pub device: Option<u32>,
    /// Name with unit last, one of [`counter`] or free.
    pub name: NameId,
    /// The value that was read.
    pub value: f64,
}

/// What recording had done in a process since its beginning, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingTotals {
    /// When it was read.
    pub time_ns: u64,
    /// Process that was recorded.
    pub process: ProcessIndex,
    /// Records of calls, ranges and mappings that its threads wrote.
    pub notes: u64,
    /// Records that CUPTI gave of kernels, copies, waits and memory.
    pub device_records: u64,
    /// Records of calls that CUPTI gave.
    pub call_records: u64,
    /// Operators of PyTorch.
    pub operators: u64,
    /// Time in which its threads took stacks.
    pub stack_ns: u64,
    /// Time that its threads waited for the collector.
    pub wait_ns: u64,
    /// CPU time of the collector, for all processes of the run.
    pub collector_ns: u64,
}

/// Names of counters that tprof itself writes.
pub mod counter {
    /// Resident set size of a process, bytes.
    pub const RSS_BYTES: &str = "rss_bytes";
    /// Proportional set size of a process, bytes: a page that several processes map counts in
    /// parts. All of a file that have one time were read together, and add up.
    pub const PSS_BYTES: &str = "pss_bytes";
    /// Virtual size of a process, bytes.
    pub const MAPPED_BYTES: &str = "mapped_bytes";
    /// Bytes that a process read by calls since it began: from files, pipes and, by `read`,
    /// sockets; from memory (page cache) or storage. The children that it waited for are included
    /// (`/proc/PID/io`, `rchar`). This value and the next three are written when they change.
    pub const READ_BYTES: &str = "io_read_bytes";
    /// Bytes that it wrote by calls (`wchar`).
    pub const WRITTEN_BYTES: &str = "io_written_bytes";
    /// Bytes that were read from storage for it (`read_bytes`).
    pub const STORAGE_READ_BYTES: &str = "storage_read_bytes";
    /// Bytes that it wrote to storage, or to pages that will be written (`write_bytes`).
    pub const STORAGE_WRITTEN_BYTES: &str = "storage_written_bytes";
    /// Live heap bytes of a process (requested under exact, usable under sampled).
    pub const HEAP_BYTES: &str = "heap_bytes";
    /// `memory.current` of the run's cgroup, bytes; if cgroups around it have limits too, of the
    /// one that has least left.
    pub const CGROUP_BYTES: &str = "cgroup_memory_bytes";
    /// The part of that which is page cache of files, and which the kernel can reclaim, bytes; only
    /// while at least [`CGROUP_CACHE_SHARE`] of the limit are in use.
    pub const CGROUP_CACHE_BYTES: &str = "cgroup_cache_bytes";
    /// See there: the kernel takes long to add it up.
    pub const CGROUP_CACHE_SHARE: f64 = 0.8;
    /// `memory.max` of the same cgroup, bytes; absent without a limit.
    pub const CGROUP_LIMIT_BYTES: &str = "cgroup_memory_limit_bytes";
    /// `oom_kill` count of the run's cgroup since the run began.
    pub const CGROUP_OOM_KILLS: &str = "cgroup_oom_kills";
    /// Number of processors of the host that were busy with any program since the value before, on
    /// average.
    pub const HOST_BUSY_CORES: &str = "host_busy_cores";
    /// Time that the CPU limit of the run's cgroup has kept its tasks off the processors since the
    /// run began, ns, summed over processors; absent where the kernel keeps no such account.
    pub const CGROUP_THROTTLED_NS: &str = "cgroup_throttled_ns";
    /// Share of the driver's last sampling period in which a kernel ran on a device. This and the
    /// following belong to no process; devices are numbered as NVML numbers the host's.
    pub const GPU_UTILIZATION: &str = "gpu_utilization";
    /// Share of that period in which the device's memory was read or written.
    pub const GPU_MEMORY_UTILIZATION: &str = "gpu_memory_utilization";
    /// Memory of a device in use by all processes, bytes.
    pub const GPU_MEMORY_BYTES: &str = "gpu_memory_used_bytes";
    /// Bytes that a process's stream-ordered pools of a device hold, as it numbers its devices.
    pub const POOL_HELD_BYTES: &str = "gpu_pool_held_bytes";
    /// The part of these bytes that is given out.
    pub const POOL_GIVEN_BYTES: &str = "gpu_pool_given_bytes";
    /// Clock of the multiprocessors, Hz.
    pub const GPU_SM_CLOCK: &str = "gpu_sm_clock_hz";
    /// Clock of the memory, Hz.
    pub const GPU_MEMORY_CLOCK: &str = "gpu_memory_clock_hz";
    /// Power that the board takes, W.
    pub const GPU_POWER: &str = "gpu_power_watts";
    /// Temperature of the chip, degrees Celsius.
    pub const GPU_TEMPERATURE: &str = "gpu_temperature_celsius";
    /// Why clocks are lower than they could be: NVML's bits, as a number.
    pub const GPU_THROTTLE: &str = "gpu_throttle_reasons";
    /// Steps that a process had begun, at the beginning of each: recorded or not
    /// (`--overhead paired`).
    pub const STEPS_BEGUN: &str = "steps_begun";
    /// All of these: any other name is a program's own.
    pub const OWN: [&str; 25] = [
        RSS_BYTES,
        PSS_BYTES,
        MAPPED_BYTES,
        READ_BYTES,
        WRITTEN_BYTES,
        STORAGE_READ_BYTES,
        STORAGE_WRITTEN_BYTES,
        HEAP_BYTES,
        CGROUP_BYTES,
        CGROUP_CACHE_BYTES,
        CGROUP_LIMIT_BYTES,
        CGROUP_OOM_KILLS,
        HOST_BUSY_CORES,
        CGROUP_THROTTLED_NS,
        GPU_UTILIZATION,
        GPU_MEMORY_UTILIZATION,
        GPU_MEMORY_BYTES,
        POOL_HELD_BYTES,
        POOL_GIVEN_BYTES,
        GPU_SM_CLOCK,
        GPU_MEMORY_CLOCK,
        GPU_POWER,
        GPU_TEMPERATURE,
        GPU_THROTTLE,
        STEPS_BEGUN,
    ];
}
