//! Defines the rows that keep the figures of a rank's steps for the whole job.

use super::ids::ProcessIndex;

/// The figures of consecutive steps of a rank, or of a stretch of time without steps.
///
/// A step that takes a second or longer has a row of its own. Shorter steps share a row, until the
/// row spans a second. If no step was seen yet, a row stands for ten seconds.
///
/// All figures are those of the rank: of all processes of the file, and of all devices that they
/// use. A figure that wasn't measured is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryRow {
    /// Beginning of the first step.
    pub start_ns: u64,
    /// Time from there to the end of the last step. Steps may lie apart, so it may be longer than
    /// [`Self::steps_ns`].
    pub duration_ns: u64,
    /// The process that made the steps.
    pub process: ProcessIndex,
    /// What told of the steps.
    pub source: HistorySource,
    /// Number of the first step.
    pub first_step: u64,
    /// How many steps there are; 0 for a stretch of time without steps.
    pub steps: u64,
    /// Sum of the steps' durations; without steps, the length of the stretch.
    pub steps_ns: u64,
    /// Duration of the shortest step.
    pub shortest_ns: u64,
    /// Median of the steps' durations; the higher of the two middle ones of an even number.
    pub median_ns: u64,
    /// Duration of the longest step.
    pub longest_ns: u64,
    /// Number of the longest step.
    pub longest_step: u64,
    /// How many devices the rank has used so far; `None` if no work of a device was recorded, and
    /// then the next five are unknown, too. Times of several devices are added up.
    pub devices: Option<u32>,
    /// Time in the steps in which a device ran anything.
    pub busy_ns: Option<u64>,
    /// Time in which it computed.
    pub compute_ns: Option<u64>,
    /// Time in which it ran kernels that communicate.
    pub communication_ns: Option<u64>,
    /// The part of that time in which it didn't compute.
    pub exposed_communication_ns: Option<u64>,
    /// Bytes that were copied or set in copies that began in the steps.
    pub copied_bytes: Option<u64>,
    /// How many operations between ranks began in the steps; `None` if none was recorded so far.
    pub collectives: Option<u64>,
    /// Bytes of these operations; `None` if they aren't known of each.
    pub collective_bytes: Option<u64>,
    /// Time in the steps in which the host was in such an operation.
    pub collective_ns: Option<u64>,
    /// CPU time of the rank's processes between beginning and end of the row.
    pub cpu_ns: Option<u64>,
    /// Live bytes of the heaps at the end of the row.
    pub heap_bytes: Option<u64>,
    /// Resident memory of the processes at the end of the row.
    pub resident_bytes: Option<u64>,
    /// Bytes that the processes read by calls between beginning and end of the row.
    pub read_bytes: Option<u64>,
    /// Bytes that they wrote by calls.
    pub written_bytes: Option<u64>,
    /// Bytes that were read from storage for them.
    pub storage_read_bytes: Option<u64>,
    /// Bytes that they wrote to storage.
    pub storage_written_bytes: Option<u64>,
    /// Memory of the devices in use at the end of the row, by all programs.
    pub device_memory_bytes: Option<u64>,
    /// Highest temperature of a device, degrees Celsius.
    pub temperature_celsius: Option<u64>,
    /// Mean power draw of the devices, added up, mW.
    pub power_milliwatts: Option<u64>,
    /// Mean clock of the slowest device's multiprocessors, Hz.
    pub sm_clock_hz: Option<u64>,
    /// Reasons why clocks were lower than they could be, as NVML's bits; those of all devices.
    pub throttle_reasons: Option<u64>,
    /// Time for which the CPU limit of the cgroup kept its tasks off the processors, added up.
    pub throttled_ns: Option<u64>,
    /// Energy that the devices took, added up, by their own counters, mJ.
    pub energy_millijoules: Option<u64>,
    /// Share of the devices' multiprocessors that were busy, in millionths. This and the next two
    /// are means over devices and time.
    pub sm_active_millionths: Option<u64>,
    /// Share of the time in which tensor cores worked, in millionths.
    pub tensor_active_millionths: Option<u64>,
    /// Share of the devices' memory bandwidth that was in use, in millionths.
    pub dram_bandwidth_millionths: Option<u64>,
}

impl HistoryRow {
    /// Returns the end of the row.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// What told of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HistorySource {
    /// Nothing: the row is a stretch of time without steps.
    #[default]
    None,
    /// Marks or ranges of the program.
    Explicit,
    /// Steps of torch.profiler.
    Profiler,
    /// Updates of the optimizer.
    Optimizer,
    /// Batches of the data loader.
    Loader,
    /// An estimate, from what repeats.
    Inferred,
}
