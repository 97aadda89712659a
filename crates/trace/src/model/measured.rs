//! Defines rows for quantities that the collector reads from time to time.

use super::ids::{NameId, ProcessIndex};

/// A measured quantity at one moment: RSS, mapped bytes, cgroup memory, queue lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counter {
    /// Time of the reading.
    pub time_ns: u64,
    /// Index of the process; `None` for the host or its cgroup.
    pub process: Option<ProcessIndex>,
    /// Number of the device, if the value belongs to one.
    pub device: Option<u32>,
    /// Name of the quantity, with its unit last: a name in [`counter`], or a name that the program
    /// chose.
    pub name: NameId,
    /// The value that was read.
    pub value: f64,
}

/// Totals of the work that recording had done in a process up to one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingTotals {
    /// Time when the totals were read.
    pub time_ns: u64,
    /// Process that was recorded.
    pub process: ProcessIndex,
    /// Number of records of calls, ranges and mappings that the process's threads wrote.
    pub notes: u64,
    /// Number of records of kernels, copies, waits and memory that CUPTI delivered.
    pub device_records: u64,
    /// Number of records of calls that CUPTI delivered.
    pub call_records: u64,
    /// Number of operators that PyTorch reported.
    pub operators: u64,
    /// Time that the process's threads spent taking stacks, ns.
    pub stack_ns: u64,
    /// Time that the process's threads waited for the collector, ns.
    pub wait_ns: u64,
    /// CPU time of the collector for all processes of the run, ns.
    pub collector_ns: u64,
}

/// Names of counters that tprof itself writes.
pub mod counter {
    /// Resident set size of a process, bytes.
    pub const RSS_BYTES: &str = "rss_bytes";
    /// Proportional set size of a process, bytes. A page that several processes map is divided
    /// among them. All values of a file with the same time were read together, so their sum is the
    /// memory of these processes.
    pub const PSS_BYTES: &str = "pss_bytes";
    /// Virtual size of a process, bytes.
    pub const MAPPED_BYTES: &str = "mapped_bytes";
    /// Bytes that a process has read by calls since it began (`rchar` in `/proc/PID/io`). They come
    /// from files, pipes and, with `read`, sockets, and from the page cache or from storage.
    /// Children are not included, but for what one read after its last reading before the process
    /// waited for it. This value and the next three are written when they change.
    pub const READ_BYTES: &str = "io_read_bytes";
    /// Bytes that a process has written by calls (`wchar`).
    pub const WRITTEN_BYTES: &str = "io_written_bytes";
    /// Bytes that were read from storage for a process (`read_bytes`).
    pub const STORAGE_READ_BYTES: &str = "storage_read_bytes";
    /// Bytes that a process wrote to storage, or to pages that will be written to storage
    /// (`write_bytes`).
    pub const STORAGE_WRITTEN_BYTES: &str = "storage_written_bytes";
    /// Live heap bytes of a process. An exact recording counts requested bytes, and a sampled one
    /// counts usable bytes.
    pub const HEAP_BYTES: &str = "heap_bytes";
    /// `memory.current` of the run's cgroup, bytes. If enclosing cgroups have limits too, this is
    /// the value of the cgroup with the least memory left.
    pub const CGROUP_BYTES: &str = "cgroup_memory_bytes";
    /// The part of [`CGROUP_BYTES`] that is page cache and that the operating system can reclaim,
    /// bytes. It is written only while at least [`CGROUP_CACHE_SHARE`] of the limit is in use.
    pub const CGROUP_CACHE_BYTES: &str = "cgroup_cache_bytes";
    /// Share of the limit from which on [`CGROUP_CACHE_BYTES`] is read. Below it, the value isn't
    /// read, because the operating system takes long to add it up.
    pub const CGROUP_CACHE_SHARE: f64 = 0.8;
    /// `memory.max` of the same cgroup, bytes; absent if there is no limit.
    pub const CGROUP_LIMIT_BYTES: &str = "cgroup_memory_limit_bytes";
    /// `oom_kill` count of the run's cgroup since the run began.
    pub const CGROUP_OOM_KILLS: &str = "cgroup_oom_kills";
    /// Average number of the host's processors that any program kept busy since the previous value.
    pub const HOST_BUSY_CORES: &str = "host_busy_cores";
    /// Time for which the CPU limit of the run's cgroup has kept its tasks off the processors since
    /// the run began, ns, summed over processors; absent if the kernel doesn't count it.
    pub const CGROUP_THROTTLED_NS: &str = "cgroup_throttled_ns";
    /// Share of the driver's last sampling period in which a kernel ran on a device. This counter
    /// and the device counters below have no process, and number devices as NVML does on the host.
    /// The two counters of pools are exceptions.
    pub const GPU_UTILIZATION: &str = "gpu_utilization";
    /// Share of the driver's last sampling period in which the device's memory was read or written.
    pub const GPU_MEMORY_UTILIZATION: &str = "gpu_memory_utilization";
    /// Memory of a device in use by all processes, bytes.
    pub const GPU_MEMORY_BYTES: &str = "gpu_memory_used_bytes";
    /// Bytes that a process's stream-ordered pools of a device have reserved. The row has the
    /// process's own number of the device.
    pub const POOL_HELD_BYTES: &str = "gpu_pool_held_bytes";
    /// The part of [`POOL_HELD_BYTES`] that is allocated to the program.
    pub const POOL_GIVEN_BYTES: &str = "gpu_pool_given_bytes";
    /// Clock of the multiprocessors, Hz.
    pub const GPU_SM_CLOCK: &str = "gpu_sm_clock_hz";
    /// Clock of the memory, Hz.
    pub const GPU_MEMORY_CLOCK: &str = "gpu_memory_clock_hz";
    /// Power draw of the board, W.
    pub const GPU_POWER: &str = "gpu_power_watts";
    /// Temperature of the chip, degrees Celsius.
    pub const GPU_TEMPERATURE: &str = "gpu_temperature_celsius";
    /// The reasons why clocks are lower than they could be: NVML's bits, as a number.
    pub const GPU_THROTTLE: &str = "gpu_throttle_reasons";
    /// Energy that the board has taken since the driver was loaded, J.
    pub const GPU_ENERGY: &str = "gpu_energy_joules";
    /// Share of the multiprocessors that were busy, over the time. This counter and those below it
    /// are means over a stretch of time (NVML's GPM). The row's time is the beginning of the
    /// stretch, so that the value holds until the next row, as that of other counters.
    pub const GPU_SM_ACTIVE: &str = "gpu_sm_active";
    /// Warps on the multiprocessors, as a share of the most that could be there.
    pub const GPU_SM_OCCUPANCY: &str = "gpu_sm_occupancy";
    /// Share of the time in which tensor cores of the multiprocessors worked.
    pub const GPU_TENSOR_ACTIVE: &str = "gpu_tensor_active";
    /// The same, for half precision and others that use these units (HMMA).
    pub const GPU_TENSOR_HMMA_ACTIVE: &str = "gpu_tensor_hmma_active";
    /// The same, for integers (IMMA).
    pub const GPU_TENSOR_IMMA_ACTIVE: &str = "gpu_tensor_imma_active";
    /// The same, for double precision (DFMA).
    pub const GPU_TENSOR_DFMA_ACTIVE: &str = "gpu_tensor_dfma_active";
    /// Share of the time in which the multiprocessors calculated in double precision, outside the
    /// tensor cores.
    pub const GPU_FP64_ACTIVE: &str = "gpu_fp64_active";
    /// The same, in single precision.
    pub const GPU_FP32_ACTIVE: &str = "gpu_fp32_active";
    /// The same, in half precision.
    pub const GPU_FP16_ACTIVE: &str = "gpu_fp16_active";
    /// The same, with integers.
    pub const GPU_INTEGER_ACTIVE: &str = "gpu_integer_active";
    /// Bandwidth of the device's memory in use, as a share of the most that is possible.
    pub const GPU_DRAM_BANDWIDTH: &str = "gpu_dram_bandwidth_utilization";
    /// Bytes a second that the device received over PCIe.
    pub const GPU_PCIE_RECEIVED: &str = "gpu_pcie_rx_bytes_per_second";
    /// Bytes a second that the device sent over PCIe.
    pub const GPU_PCIE_SENT: &str = "gpu_pcie_tx_bytes_per_second";
    /// Bytes a second that the device received over all its links of NVLink.
    pub const GPU_NVLINK_RECEIVED: &str = "gpu_nvlink_rx_bytes_per_second";
    /// Bytes a second that the device sent over all its links of NVLink.
    pub const GPU_NVLINK_SENT: &str = "gpu_nvlink_tx_bytes_per_second";
    /// The means over a stretch of time, in the order in which people see them.
    pub const GPU_MEANS: [&str; 15] = [
        GPU_SM_ACTIVE,
        GPU_SM_OCCUPANCY,
        GPU_TENSOR_ACTIVE,
        GPU_TENSOR_HMMA_ACTIVE,
        GPU_TENSOR_IMMA_ACTIVE,
        GPU_TENSOR_DFMA_ACTIVE,
        GPU_DRAM_BANDWIDTH,
        GPU_FP64_ACTIVE,
        GPU_FP32_ACTIVE,
        GPU_FP16_ACTIVE,
        GPU_INTEGER_ACTIVE,
        GPU_PCIE_RECEIVED,
        GPU_PCIE_SENT,
        GPU_NVLINK_RECEIVED,
        GPU_NVLINK_SENT,
    ];
    /// Bytes a second that were read from the device's memory. This mean and the next one are of
    /// `--gpu-metrics` alone. A mean that is not a number isn't known from its time on.
    pub const GPU_DRAM_READ: &str = "gpu_dram_read_bytes_per_second";
    /// Bytes a second that were written to the device's memory.
    pub const GPU_DRAM_WRITTEN: &str = "gpu_dram_written_bytes_per_second";
    /// The bytes of the device's memory.
    pub const GPU_DRAM_BYTES: [&str; 2] = [GPU_DRAM_READ, GPU_DRAM_WRITTEN];
    /// Number of steps that a process has begun, recorded or not (`--overhead paired`). The value
    /// is written at the beginning of each step.
    pub const STEPS_BEGUN: &str = "steps_begun";
    /// Segments that TCP sent again (`RetransSegs` in `/proc/net/snmp`). This counter and those
    /// below it count errors since the run began, and are written when they change. Those of the
    /// network are of the collector's network namespace.
    pub const TCP_RETRANSMITTED: &str = "tcp_retransmitted_segments";
    /// Segments that TCP sent, without those that it sent again (`OutSegs`). The value is written
    /// only when another counter of TCP changes.
    pub const TCP_SENT: &str = "tcp_sent_segments";
    /// Segments that TCP received with an error (`InErrs`).
    pub const TCP_RECEIVE_ERRORS: &str = "tcp_receive_errors";
    /// Expiries of TCP's retransmission timer (`TCPTimeouts` in `/proc/net/netstat`).
    pub const TCP_TIMEOUTS: &str = "tcp_timeouts";
    /// Connections that TCP refused because a listening socket's queue was full (`ListenDrops`).
    pub const TCP_LISTEN_DROPS: &str = "tcp_listen_drops";
    /// Bytes that an interface received, with the headers of the link. The name of this counter and
    /// of the next one, and those of the errors of interfaces, go on with [`PLACE`] and the interface.
    /// For an interface of another network namespace than the collector's, the number of that
    /// namespace's inode and another [`PLACE`] come before the interface.
    pub const NETWORK_RECEIVED_BYTES: &str = "network_received_bytes";
    /// Bytes that an interface sent.
    pub const NETWORK_SENT_BYTES: &str = "network_sent_bytes";
    /// Bytes that an InfiniBand or RoCE port received; [`PLACE`] and the port follow.
    pub const INFINIBAND_RECEIVED_BYTES: &str = "infiniband_received_bytes";
    /// Bytes that an InfiniBand or RoCE port sent.
    pub const INFINIBAND_SENT_BYTES: &str = "infiniband_sent_bytes";
    /// The bytes of interfaces and ports. They are counted from the first reading of the run, and
    /// written when they change.
    pub const TRAFFIC: [&str; 4] = [
        NETWORK_RECEIVED_BYTES,
        NETWORK_SENT_BYTES,
        INFINIBAND_RECEIVED_BYTES,
        INFINIBAND_SENT_BYTES,
    ];
    /// Packets that an interface received with an error. The name of this counter and of the next
    /// three goes on with [`PLACE`] and the interface.
    pub const NETWORK_RECEIVE_ERRORS: &str = "network_receive_errors";
    /// Packets that an interface could not send.
    pub const NETWORK_SEND_ERRORS: &str = "network_send_errors";
    /// Packets that an interface received and dropped.
    pub const NETWORK_RECEIVE_DROPS: &str = "network_receive_drops";
    /// Packets that an interface dropped instead of sending them.
    pub const NETWORK_SEND_DROPS: &str = "network_send_drops";
    /// Error counters of an InfiniBand or RoCE port. After the prefix, each name is that of a file
    /// in the port's `counters` or `hw_counters`. [`PLACE`] and the port, as `mlx5_0:1`, follow.
    pub const INFINIBAND: [&str; 12] = [
        "infiniband_symbol_error",
        "infiniband_link_error_recovery",
        "infiniband_link_downed",
        "infiniband_port_rcv_errors",
        "infiniband_port_xmit_discards",
        "infiniband_local_link_integrity_errors",
        "infiniband_out_of_sequence",
        "infiniband_packet_seq_err",
        "infiniband_local_ack_timeout_err",
        "infiniband_rnr_nak_retry_err",
        "infiniband_implied_nak_seq_err",
        "infiniband_rx_icrc_encapsulated",
    ];
    /// How often links of an InfiniBand or RoCE port went down.
    pub const INFINIBAND_LINK_DOWN: &str = INFINIBAND[2];
    /// Memory errors of a device that ECC corrected. This counter and those below it have a device.
    pub const GPU_ECC_CORRECTED: &str = "gpu_ecc_corrected_errors";
    /// Memory errors of a device that ECC could not correct.
    pub const GPU_ECC_UNCORRECTED: &str = "gpu_ecc_uncorrected_errors";
    /// Rows of a device's memory that were remapped because of corrected errors.
    pub const GPU_ROWS_CORRECTED: &str = "gpu_remapped_rows_corrected";
    /// Rows of a device's memory that were remapped because of uncorrected errors.
    pub const GPU_ROWS_UNCORRECTED: &str = "gpu_remapped_rows_uncorrected";
    /// Whether remapping a row has failed since the run began: 0 or 1.
    pub const GPU_ROW_REMAP_FAILED: &str = "gpu_row_remap_failed";
    /// Pages of a device's memory that were retired, on devices that remap no rows.
    pub const GPU_RETIRED_PAGES: &str = "gpu_retired_pages";
    /// Packets that a device's PCIe link sent again.
    pub const GPU_PCIE_REPLAYS: &str = "gpu_pcie_replays";
    /// Packets that a link of NVLink sent again. The name of this counter and of the next three goes
    /// on with [`PLACE`] and the number of the link.
    pub const GPU_NVLINK_REPLAYS: &str = "gpu_nvlink_replays";
    /// How often a link of NVLink had to be trained again.
    pub const GPU_NVLINK_RECOVERIES: &str = "gpu_nvlink_recoveries";
    /// Flow control units that a link of NVLink received with a wrong checksum.
    pub const GPU_NVLINK_FLIT_ERRORS: &str = "gpu_nvlink_flit_crc_errors";
    /// Data that a link of NVLink received with a wrong checksum.
    pub const GPU_NVLINK_DATA_ERRORS: &str = "gpu_nvlink_data_crc_errors";
    /// In the name of a counter of errors or traffic, separates the quantity from the interface, port
    /// or link.
    pub const PLACE: char = '/';
    /// All counters of errors but those of InfiniBand.
    pub const ERRORS: [&str; 20] = [
        TCP_RETRANSMITTED,
        TCP_SENT,
        TCP_RECEIVE_ERRORS,
        TCP_TIMEOUTS,
        TCP_LISTEN_DROPS,
        NETWORK_RECEIVE_ERRORS,
        NETWORK_SEND_ERRORS,
        NETWORK_RECEIVE_DROPS,
        NETWORK_SEND_DROPS,
        GPU_ECC_CORRECTED,
        GPU_ECC_UNCORRECTED,
        GPU_ROWS_CORRECTED,
        GPU_ROWS_UNCORRECTED,
        GPU_ROW_REMAP_FAILED,
        GPU_RETIRED_PAGES,
        GPU_PCIE_REPLAYS,
        GPU_NVLINK_REPLAYS,
        GPU_NVLINK_RECOVERIES,
        GPU_NVLINK_FLIT_ERRORS,
        GPU_NVLINK_DATA_ERRORS,
    ];
    /// All other names above but those of traffic. A program may use any other name.
    pub const OWN: [&str; 41] = [
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
        GPU_ENERGY,
        GPU_SM_ACTIVE,
        GPU_SM_OCCUPANCY,
        GPU_TENSOR_ACTIVE,
        GPU_TENSOR_HMMA_ACTIVE,
        GPU_TENSOR_IMMA_ACTIVE,
        GPU_TENSOR_DFMA_ACTIVE,
        GPU_DRAM_BANDWIDTH,
        GPU_FP64_ACTIVE,
        GPU_FP32_ACTIVE,
        GPU_FP16_ACTIVE,
        GPU_INTEGER_ACTIVE,
        GPU_PCIE_RECEIVED,
        GPU_PCIE_SENT,
        GPU_NVLINK_RECEIVED,
        GPU_NVLINK_SENT,
        STEPS_BEGUN,
    ];
}
