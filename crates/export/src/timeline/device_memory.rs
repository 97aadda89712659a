//! Computes the device memory of each process from the calls that allocated and freed it.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::model::{Allocator, DeviceAllocation, MemoryKind, ProcessIndex};

/// A device as a process numbers it.
pub(super) type ProcessDevice = (ProcessIndex, u32);

/// Returns the bytes that each process had allocated on each device after each change, in order of
/// time. Blocks of a framework's allocator are not counted, because they are parts of memory that
/// the allocator allocated by such calls.
pub(super) fn taken(trace: &TraceFile) -> BTreeMap<ProcessDevice, Vec<(u64, u64)>> {
    let mut levels: BTreeMap<ProcessDevice, Vec<(u64, u64)>> = BTreeMap::new();
    let mut blocks: FxHashMap<(ProcessIndex, u64), (u32, u64)> = FxHashMap::default();
    let mut change = |of: ProcessDevice, time_ns: u64, allocated: u64, freed: u64| {
        let points = levels.entry(of).or_default();
        let before = points.last().map_or(0, |(_, bytes)| *bytes);
        points.push((time_ns, before.saturating_add(allocated).saturating_sub(freed)));
    };
    for row in trace.in_order::<DeviceAllocation>(0, u64::MAX).flatten() {
        let key = (row.process, row.address);
        if row.allocator == Allocator::Framework {
            continue;
        }
        if !row.free {
            let Some(device) = row.device.filter(|_| is_of_device(&row)) else { continue };
            let bytes = row.bytes.unwrap_or(0);
            // The address was allocated again, so the previous block was freed, although its free
            // was not recorded.
            if let Some((device, bytes)) = blocks.insert(key, (device, bytes)) {
                change((row.process, device), row.time_ns, 0, bytes);
            }
            change((row.process, device), row.time_ns, bytes, 0);
        } else if row.address != 0 {
            if let Some((device, bytes)) = blocks.remove(&key) {
                change((row.process, device), row.time_ns, 0, bytes);
            }
        } else if let Some(device) = row.device.filter(|_| row.correlation.is_none()) {
            // A reset frees everything that the process has allocated on the device.
            let mut freed = 0;
            blocks.retain(|(process, _), (of, bytes)| {
                let gone = *process == row.process && *of == device;
                freed += if gone { *bytes } else { 0 };
                !gone
            });
            change((row.process, device), row.time_ns, 0, freed);
        }
    }
    levels
}

/// Whether a block uses memory of the device that counts for this process. Managed memory may be
/// elsewhere, and memory that another process allocated counts for that process.
fn is_of_device(row: &DeviceAllocation) -> bool {
    let own = matches!(row.allocator, Allocator::Library | Allocator::Virtual | Allocator::Pool);
    let kinds =
        [MemoryKind::Device, MemoryKind::Array, MemoryKind::DeviceStatic, MemoryKind::Unknown];
    own && kinds.contains(&row.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::{TraceHeader, TraceWriter};

    fn row(time_ns: u64, free: bool, address: u64, bytes: u64) -> DeviceAllocation {
        DeviceAllocation {
            time_ns,
            free,
            address,
            device: Some(0),
            bytes: (!free).then_some(bytes),
            kind: MemoryKind::Device,
            ..DeviceAllocation::default()
        }
    }

    #[test]
    fn blocks_count_from_their_allocation_until_their_free() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let other = DeviceAllocation { device: Some(1), ..row(3, false, 0x30, 7) };
        let frameworks =
            DeviceAllocation { allocator: Allocator::Framework, ..row(4, false, 0x10, 50) };
        let managed =
            DeviceAllocation { kind: MemoryKind::Managed, ..row(5, false, 0x50, 1 << 30) };
        // The free has another device than the allocation, because the program had selected another
        // one.
        let elsewhere = DeviceAllocation { device: Some(1), ..row(6, true, 0x10, 0) };
        writer
            .write(&mut vec![
                row(1, false, 0x10, 100),
                row(2, false, 0x20, 20),
                other,
                frameworks,
                managed,
                elsewhere,
                row(7, true, 0x99, 0),
                row(8, false, 0x20, 5),
                row(9, true, 0, 0),
            ])
            .unwrap();
        writer.finish().unwrap();
        let levels = taken(&TraceFile::open(&path).unwrap());
        let of = |device| levels[&(0, device)].clone();
        assert_eq!(of(0), [(1, 100), (2, 120), (6, 20), (8, 0), (8, 5), (9, 0)]);
        assert_eq!(of(1), [(3, 7)]);
        assert_eq!(levels.len(), 2);
    }
}
