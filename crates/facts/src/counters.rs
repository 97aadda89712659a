//! Finds the unit of a counter by its name, and the name under which people see it.

use tprof_trace::model::counter;

/// The unit of a counter's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterUnit {
    /// Bytes, shown with binary prefixes.
    Bytes,
    /// Nanoseconds, shown as a duration.
    Nanoseconds,
    /// A share from 0 to 1.
    Share,
    /// A frequency in cycles per second.
    Hertz,
    /// A power in watts.
    Watts,
    /// An energy in joules.
    Joules,
    /// Temperature in degrees Celsius.
    Celsius,
    /// Bytes a second, shown with binary prefixes.
    BytesPerSecond,
    /// A number of things, or a number whose unit only the program knows.
    Count,
}

impl CounterUnit {
    /// Returns the unit of a counter by its name. The name of a program's own counter may end in
    /// its unit too.
    pub fn of(name: &str) -> CounterUnit {
        match name {
            counter::GPU_UTILIZATION | counter::GPU_MEMORY_UTILIZATION => CounterUnit::Share,
            counter::GPU_PCIE_RECEIVED
            | counter::GPU_PCIE_SENT
            | counter::GPU_NVLINK_RECEIVED
            | counter::GPU_NVLINK_SENT
            | counter::GPU_DRAM_READ
            | counter::GPU_DRAM_WRITTEN => CounterUnit::BytesPerSecond,
            name if counter::GPU_MEANS.contains(&name) => CounterUnit::Share,
            counter::GPU_SM_CLOCK | counter::GPU_MEMORY_CLOCK => CounterUnit::Hertz,
            counter::GPU_POWER => CounterUnit::Watts,
            counter::GPU_ENERGY => CounterUnit::Joules,
            counter::GPU_TEMPERATURE => CounterUnit::Celsius,
            counter::CGROUP_THROTTLED_NS => CounterUnit::Nanoseconds,
            name if name.ends_with("_bytes") || is_traffic(name) => CounterUnit::Bytes,
            _ => CounterUnit::Count,
        }
    }
}

/// Whether a counter only rises, so that its last value is the sum since the run began. A device's
/// energy isn't one: it rises from when the driver was loaded.
pub fn is_total(name: &str) -> bool {
    use counter::*;
    let totals = [READ_BYTES, WRITTEN_BYTES, STORAGE_READ_BYTES, STORAGE_WRITTEN_BYTES];
    totals.contains(&name)
        || [CGROUP_OOM_KILLS, CGROUP_THROTTLED_NS].contains(&name)
        || is_error(name)
        || is_traffic(name)
}

/// Whether this counts the bytes of an interface or port.
pub fn is_traffic(name: &str) -> bool {
    counter::TRAFFIC.contains(&quantity(name))
}

/// Whether this is a counter of errors of the machine. Those of a program have a process.
pub fn is_error(name: &str) -> bool {
    let quantity = quantity(name);
    counter::ERRORS.contains(&quantity) || counter::INFINIBAND.contains(&quantity)
}

/// Returns the name of a counter of errors or traffic without the interface, port or link that it is of.
pub fn quantity(name: &str) -> &str {
    name.split_once(counter::PLACE).map_or(name, |(quantity, _)| quantity)
}

/// Returns the interface, port or link in the name of a counter of errors or traffic.
pub fn place(name: &str) -> Option<&str> {
    name.split_once(counter::PLACE).map(|(_, place)| place)
}

/// Returns a counter's name for people. A program's own counter keeps its name.
pub fn title(name: &str) -> &str {
    match name {
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
        counter::GPU_UTILIZATION => "kernels running",
        counter::GPU_MEMORY_UTILIZATION => "memory read or written",
        counter::GPU_MEMORY_BYTES => "memory, all processes",
        counter::POOL_HELD_BYTES => "held by pools",
        counter::POOL_GIVEN_BYTES => "given out by pools",
        counter::GPU_SM_CLOCK => "SM clock",
        counter::GPU_MEMORY_CLOCK => "memory clock",
        counter::GPU_POWER => "power",
        counter::GPU_TEMPERATURE => "temperature",
        counter::STEPS_BEGUN => "Steps begun",
        counter::GPU_THROTTLE => "reasons for lower clocks, bits",
        counter::GPU_ENERGY => "energy since the driver was loaded",
        counter::GPU_SM_ACTIVE => "SMs active",
        counter::GPU_SM_OCCUPANCY => "occupancy of SMs",
        counter::GPU_TENSOR_ACTIVE => "tensor cores active",
        counter::GPU_TENSOR_HMMA_ACTIVE => "tensor cores active, HMMA",
        counter::GPU_TENSOR_IMMA_ACTIVE => "tensor cores active, IMMA",
        counter::GPU_TENSOR_DFMA_ACTIVE => "tensor cores active, DFMA",
        counter::GPU_FP64_ACTIVE => "FP64 active, without tensor cores",
        counter::GPU_FP32_ACTIVE => "FP32 active, without tensor cores",
        counter::GPU_FP16_ACTIVE => "FP16 active, without tensor cores",
        counter::GPU_INTEGER_ACTIVE => "integer units active",
        counter::GPU_DRAM_BANDWIDTH => "memory bandwidth in use",
        counter::GPU_PCIE_RECEIVED => "received over PCIe",
        counter::GPU_PCIE_SENT => "sent over PCIe",
        counter::GPU_NVLINK_RECEIVED => "received over NVLink",
        counter::GPU_NVLINK_SENT => "sent over NVLink",
        counter::TCP_RETRANSMITTED => "TCP segments sent again",
        counter::TCP_SENT => "TCP segments sent",
        counter::TCP_RECEIVE_ERRORS => "TCP segments received with errors",
        counter::TCP_TIMEOUTS => "TCP timeouts",
        counter::TCP_LISTEN_DROPS => "TCP connections refused, queue full",
        counter::NETWORK_RECEIVED_BYTES => "received by an interface",
        counter::NETWORK_SENT_BYTES => "sent by an interface",
        counter::INFINIBAND_RECEIVED_BYTES => "received by a port",
        counter::INFINIBAND_SENT_BYTES => "sent by a port",
        counter::NETWORK_RECEIVE_ERRORS => "receive errors",
        counter::NETWORK_SEND_ERRORS => "send errors",
        counter::NETWORK_RECEIVE_DROPS => "received packets dropped",
        counter::NETWORK_SEND_DROPS => "packets dropped instead of sent",
        counter::GPU_ECC_CORRECTED => "corrected ECC errors",
        counter::GPU_ECC_UNCORRECTED => "uncorrected ECC errors",
        counter::GPU_ROWS_CORRECTED => "rows remapped, corrected errors",
        counter::GPU_ROWS_UNCORRECTED => "rows remapped, uncorrected errors",
        counter::GPU_ROW_REMAP_FAILED => "remapping a row failed",
        counter::GPU_RETIRED_PAGES => "retired pages",
        counter::GPU_PCIE_REPLAYS => "PCIe replays",
        counter::GPU_NVLINK_REPLAYS => "NVLink replays",
        counter::GPU_NVLINK_RECOVERIES => "NVLink recoveries",
        counter::GPU_NVLINK_FLIT_ERRORS => "NVLink flit CRC errors",
        counter::GPU_NVLINK_DATA_ERRORS => "NVLink data CRC errors",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_tprof_have_a_name_and_a_unit() {
        for name in counter::OWN.into_iter().chain(counter::ERRORS).chain(counter::TRAFFIC) {
            assert_ne!(title(name), name);
            let (unit, is_bytes) = (CounterUnit::of(name), name.ends_with("_bytes"));
            assert_eq!(unit == CounterUnit::Bytes, is_bytes, "{name}");
            let ends: [(&[&str], CounterUnit); 7] = [
                (&["_hz"], CounterUnit::Hertz),
                (&["_watts"], CounterUnit::Watts),
                (&["_joules"], CounterUnit::Joules),
                (&["_celsius"], CounterUnit::Celsius),
                (&["_bytes_per_second"], CounterUnit::BytesPerSecond),
                (&["_utilization", "_active", "_occupancy"], CounterUnit::Share),
                (&["_ns"], CounterUnit::Nanoseconds),
            ];
            for (ends, expected) in ends {
                let has_end = ends.iter().any(|end| name.ends_with(end));
                assert_eq!(unit == expected, has_end, "{name}");
            }
        }
        assert!(is_total(counter::READ_BYTES) && !is_total(counter::RSS_BYTES));
        assert!(is_total("network_send_errors/eth0") && is_total(counter::INFINIBAND_LINK_DOWN));
        assert!(is_total("network_sent_bytes/eth0"));
        assert_eq!(CounterUnit::of("infiniband_sent_bytes/mlx5_0:1"), CounterUnit::Bytes);
        assert_eq!(place("gpu_nvlink_replays/3"), Some("3"));
        assert_eq!((title("loss"), CounterUnit::of("loss")), ("loss", CounterUnit::Count));
        assert_eq!(CounterUnit::of("cache_bytes"), CounterUnit::Bytes);
    }
}
