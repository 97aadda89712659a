//! Compares the recorded device memory with the memory that the driver reports as used. The
//! difference consists of the contexts' own memory, CUPTI's buffers, other processes, and
//! allocations that neither CUPTI nor a hook records.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use tprof_document::{Cell, Column, RankContext, Table, Unit};
use tprof_rank::RankTrace;
use tprof_trace::model::{Allocator, DeviceAllocation, MemoryKind, ProcessIndex, counter};

use super::stream_pools::{HeldOverTime, PoolHoldings, held_at};
use crate::gpu::report_gpu::FileSamples;

const NO_READINGS: &str = "no memory in use was read from the driver for a device that a recorded \
                           process uses (needs `--activities gpu`, the default)";
const MORE_RECORDED: &str = "more is recorded as live than the driver reports in use";

/// The driver's readings of a device's used memory, each with the rank's live memory at that time.
pub(super) struct DriverReadings {
    /// UUID of the device.
    uuid: String,
    /// Number of the device in the driver.
    gpu: u32,
    /// Whether the driver counts its own reserve as used.
    includes_reserve: bool,
    /// The readings in order of time: time in ns, bytes that the driver reports as used, bytes that
    /// were recorded as live.
    readings: Vec<(u64, u64, u64)>,
}

/// A device at the moment when most of its memory was in use.
pub(super) struct DriverGap {
    /// Name of the device's host.
    pub host: String,
    /// Number of the device in the driver.
    pub gpu: u32,
    /// The moment, nanoseconds since the run began.
    pub at_ns: u64,
    /// Bytes in use by all processes, as the driver reports.
    pub used_bytes: u64,
    /// Bytes that were live in all ranks at that time, by tprof's records.
    pub recorded_bytes: u64,
    /// Whether the driver counts its own reserve as used.
    pub includes_reserve: bool,
}

/// Whether an allocation uses the device's memory and counts for this process. Managed memory may
/// lie elsewhere. Memory that another process shares counts for that process.
fn is_on_device(row: &DeviceAllocation) -> bool {
    let kind = matches!(
        row.kind,
        MemoryKind::Device | MemoryKind::Array | MemoryKind::DeviceStatic | MemoryKind::Unknown
    );
    let own = matches!(row.allocator, Allocator::Library | Allocator::Virtual | Allocator::Pool);
    row.device.is_some() && kind && own
}

/// Returns the driver's readings of a rank's devices. `rows` must be in order of time and have no
/// resets.
pub(super) fn readings(
    rank: &RankTrace<'_>,
    rows: &[DeviceAllocation],
    pools: &PoolHoldings,
    samples: &FileSamples,
) -> Vec<DriverReadings> {
    let uuids: HashMap<(ProcessIndex, u32), &str> = (rank.file.devices().iter())
        .map(|row| ((row.process, row.device), rank.file.name(row.uuid)))
        .collect();
    let devices = samples.facts.as_ref().and_then(|facts| facts["devices"].as_array());
    let of_device = |facts: &Value| {
        let (gpu, uuid) = (facts["index"].as_u64()? as u32, facts["uuid"].as_str()?);
        let series = samples.series.get(&(gpu, counter::GPU_MEMORY_BYTES))?;
        let numbers: Vec<(ProcessIndex, u32)> =
            uuids.iter().filter(|(_, of)| **of == uuid).map(|(key, _)| *key).collect();
        if uuid.is_empty() || numbers.is_empty() {
            return None;
        }
        let own: Vec<&DeviceAllocation> = rows
            .iter()
            .filter(|row| row.device.is_some_and(|of| numbers.contains(&(row.process, of))))
            .collect();
        let held: Vec<&HeldOverTime> =
            numbers.iter().filter_map(|number| pools.by_process.get(number)).collect();
        let mut live = LiveBytes { blocks: HashMap::new(), sum: 0, counts_pools: held.is_empty() };
        let mut next = own.iter().peekable();
        let mut readings = Vec::new();
        for (time_ns, used) in series {
            while let Some(row) = next.next_if(|row| row.time_ns <= *time_ns) {
                live.apply(row);
            }
            let held: u64 = held.iter().map(|held| held_at(held, *time_ns)).sum();
            readings.push((*time_ns, *used as u64, live.sum + held));
        }
        let includes_reserve = facts["used_includes_reserved"] == true;
        Some(DriverReadings { uuid: uuid.to_owned(), gpu, includes_reserve, readings })
    };
    devices.into_iter().flatten().filter_map(of_device).collect()
}

/// The live blocks on a device.
struct LiveBytes {
    blocks: HashMap<(ProcessIndex, u64), u64>,
    sum: u64,
    /// Whether to count blocks of pools. If the sizes of the pools themselves are known, the pools
    /// are counted instead.
    counts_pools: bool,
}

impl LiveBytes {
    fn apply(&mut self, row: &DeviceAllocation) {
        // A framework's blocks lie in segments that it allocated from the device, and those
        // segments are already counted.
        if row.allocator == Allocator::Framework {
            return;
        }
        let key = (row.process, row.address);
        if row.free {
            self.sum -= self.blocks.remove(&key).unwrap_or(0);
        } else if is_on_device(row) && (self.counts_pools || row.allocator != Allocator::Pool) {
            let bytes = row.bytes.unwrap_or(0);
            self.sum += bytes;
            self.sum -= self.blocks.insert(key, bytes).unwrap_or(0);
        }
    }
}

/// Returns each device of each host at the reading with the most memory in use, summed over all
/// ranks. If several readings are equal, the one with the most recorded memory wins.
pub(super) fn gaps<'p>(
    parts: impl Iterator<Item = (&'p RankContext, &'p str, &'p [DriverReadings])>,
) -> Vec<DriverGap> {
    type Ranks<'p> = Vec<(&'p RankContext, &'p DriverReadings)>;
    let mut devices: BTreeMap<(&str, u32, &str), Ranks<'p>> = BTreeMap::new();
    for (at, host, readings) in parts {
        for one in readings {
            devices.entry((host, one.gpu, &one.uuid)).or_default().push((at, one));
        }
    }
    let of_device = |((host, gpu, _), ranks): ((&str, u32, &str), Ranks<'p>)| {
        let all = ranks.iter().flat_map(|(at, one)| one.readings.iter().map(move |row| (at, row)));
        let (at, most) = all.max_by_key(|(_, (_, used, recorded))| (*used, *recorded))?;
        let (time_ns, used_bytes, _) = *most;
        let had = |(_, one): &(&RankContext, &DriverReadings)| {
            let after = one.readings.partition_point(|(time, ..)| *time <= time_ns);
            one.readings[..after].last().map_or(0, |(.., recorded)| *recorded)
        };
        Some(DriverGap {
            host: host.to_owned(),
            gpu,
            at_ns: at.clock.since_start(time_ns),
            used_bytes,
            recorded_bytes: ranks.iter().map(had).sum(),
            includes_reserve: ranks.iter().any(|(_, one)| one.includes_reserve),
        })
    };
    devices.into_iter().filter_map(of_device).collect()
}

/// Makes the table of devices at their fullest.
pub(super) fn in_use(driver: &[DriverGap]) -> Table {
    let columns = vec![
        Column::data("host", Unit::Text),
        Column::new("gpu", "GPU", Unit::Id),
        Column::new("used_bytes", "in use", Unit::Bytes),
        Column::new("recorded_bytes", "recorded", Unit::Bytes),
        Column::new("unexplained_bytes", "rest", Unit::Bytes),
        Column::new("at_ns", "at", Unit::Time),
    ];
    let mut table = Table::new("in_use", "Device memory in use, by the driver", columns)
        .about("rest: contexts, CUPTI's buffers, other processes, what no call shows")
        .empty(NO_READINGS);
    for gap in driver {
        let rest = gap.used_bytes.checked_sub(gap.recorded_bytes);
        table.row(vec![
            gap.host.as_str().into(),
            gap.gpu.into(),
            gap.used_bytes.into(),
            gap.recorded_bytes.into(),
            Cell::known(rest, MORE_RECORDED),
            gap.at_ns.into(),
        ]);
    }
    table
}
