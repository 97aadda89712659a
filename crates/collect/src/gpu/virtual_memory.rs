//! Writes rows for the physical memory of the driver's virtual memory management (`cuMemCreate`,
//! `cuMemMap`): when it is allocated, and when it is freed.
//!
//! Such memory exists as long as its handle has a reference or it is mapped anywhere, so several
//! calls together free it. Rings are read one after the other, so calls wait until all earlier
//! records have been read, and are then applied in order of time.

use std::collections::{BTreeMap, HashMap, HashSet};
use tprof_trace::model::{
    Allocator, DeviceAllocation, MemoryKind, ProcessIndex, StackId, ThreadIndex,
};
use tprof_wire::calls::Mapping;

/// The record of a call is read at most this long after the call, ns.
pub const LATE_NS: u64 = 5_000_000_000;
/// The value of `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: u32 = 1;

/// A successful call of the virtual memory management.
#[derive(Clone, Copy, Debug)]
pub struct MappingCall {
    /// The effect of the call.
    pub how: Mapping,
    /// Time when the call took effect, ns.
    pub time_ns: u64,
    /// Thread that made the call.
    pub thread: ThreadIndex,
    /// For a mapping or its end, the address; for other calls, the handle.
    pub what: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// For a creation, the kind of location, and its number in the high half. For a mapping, the
    /// handle.
    pub of: u64,
    /// The stack of the call; only creations have one.
    pub stack: StackId,
}

/// A block of physical memory.
#[derive(Clone, Copy, Debug)]
struct Physical {
    row: DeviceAllocation,
    references: u32,
    mappings: u32,
}

/// The physical memory of a process, and its mappings.
#[derive(Debug)]
pub struct VirtualMemory {
    process: ProcessIndex,
    calls: Vec<MappingCall>,
    /// Live blocks, by serial number.
    living: HashMap<u64, Physical>,
    next: u64,
    /// Serial numbers of the blocks whose handles have references, by handle.
    handles: HashMap<u64, u64>,
    /// Mappings by address: their bytes, and the serial number of the block. The serial number is
    /// `None` if another process allocated the block.
    mappings: BTreeMap<u64, (u64, Option<u64>)>,
    /// The addresses that rows of live blocks have. Such an address is the handle, or another
    /// number if the handle was reused while its old block was still mapped.
    numbers: HashSet<u64>,
}

impl VirtualMemory {
    /// Returns the state of a process that has no such memory.
    pub fn new(process: ProcessIndex) -> VirtualMemory {
        VirtualMemory {
            process,
            calls: Vec::new(),
            living: HashMap::new(),
            next: 0,
            handles: HashMap::new(),
            mappings: BTreeMap::new(),
            numbers: HashSet::new(),
        }
    }

    /// Adds a call, which waits until earlier records have been read.
    pub fn called(&mut self, call: MappingCall) {
        self.calls.push(call);
    }

    /// Applies the calls that are old enough, or all calls if `last` is set, and returns their
    /// rows.
    pub fn settle(&mut self, now_ns: u64, last: bool) -> Vec<DeviceAllocation> {
        self.calls.sort_by_key(|call| call.time_ns);
        let until = if last { u64::MAX } else { now_ns.saturating_sub(LATE_NS) };
        let ripe = self.calls.partition_point(|call| call.time_ns <= until);
        let calls: Vec<MappingCall> = self.calls.drain(..ripe).collect();
        let mut rows = Vec::new();
        for call in calls {
            self.apply(&call, &mut rows);
        }
        rows
    }

    fn apply(&mut self, call: &MappingCall, rows: &mut Vec<DeviceAllocation>) {
        match call.how {
            Mapping::Create => self.create(call, rows),
            Mapping::Import => {}
            Mapping::Retain => {
                if let Some(one) = self.of_handle(call.what) {
                    one.references += 1;
                }
            }
            Mapping::Map => {
                let serial = self.handles.get(&call.of).copied();
                if let Some(one) = self.of_handle(call.of) {
                    one.mappings += 1;
                }
                self.mappings.insert(call.what, (call.bytes, serial));
            }
            Mapping::Unmap => {
                let end = call.what.saturating_add(call.bytes);
                let within: Vec<u64> =
                    self.mappings.range(call.what..end).map(|(at, _)| *at).collect();
                for at in within {
                    let Some((_, Some(serial))) = self.mappings.remove(&at) else { continue };
                    if let Some(one) = self.living.get_mut(&serial) {
                        one.mappings = one.mappings.saturating_sub(1);
                    }
                    self.end(serial, call, rows);
                }
            }
            Mapping::Release => {
                let Some(serial) = self.handles.get(&call.what).copied() else { return };
                if let Some(one) = self.living.get_mut(&serial) {
                    one.references = one.references.saturating_sub(1);
                    if one.references == 0 {
                        self.handles.remove(&call.what);
                    }
                }
                self.end(serial, call, rows);
            }
        }
    }

    fn create(&mut self, call: &MappingCall, rows: &mut Vec<DeviceAllocation>) {
        let mut address = call.what;
        while !self.numbers.insert(address) {
            address = address.wrapping_add(1);
        }
        let on_device = call.of as u32 == ON_DEVICE;
        let row = DeviceAllocation {
            time_ns: call.time_ns,
            process: self.process,
            thread: call.thread,
            allocator: Allocator::Virtual,
            device: on_device.then_some((call.of >> 32) as u32),
            address,
            bytes: Some(call.bytes),
            kind: if on_device { MemoryKind::Device } else { MemoryKind::Pinned },
            stack: call.stack,
            ..DeviceAllocation::default()
        };
        self.next += 1;
        self.living.insert(self.next, Physical { row, references: 1, mappings: 0 });
        self.handles.insert(call.what, self.next);
        rows.push(row);
    }

    fn of_handle(&mut self, handle: u64) -> Option<&mut Physical> {
        self.living.get_mut(self.handles.get(&handle)?)
    }

    /// Frees a block if it has neither references nor mappings.
    fn end(&mut self, serial: u64, call: &MappingCall, rows: &mut Vec<DeviceAllocation>) {
        let gone = |one: &Physical| one.references == 0 && one.mappings == 0;
        if !self.living.get(&serial).is_some_and(gone) {
            return;
        }
        if let Some(Physical { row, .. }) = self.living.remove(&serial) {
            self.numbers.remove(&row.address);
            let MappingCall { time_ns, thread, .. } = *call;
            rows.push(DeviceAllocation { time_ns, thread, free: true, bytes: None, ..row });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(how: Mapping, time_ns: u64, what: u64, bytes: u64, of: u64) -> MappingCall {
        MappingCall { how, time_ns, thread: 0, what, bytes, of, stack: 5 }
    }

    /// Returns a call that creates memory on device 3.
    fn create(time_ns: u64, handle: u64) -> MappingCall {
        call(Mapping::Create, time_ns, handle, 2 << 20, 1 | 3 << 32)
    }

    fn rows(calls: &[MappingCall]) -> Vec<(u64, u64, bool)> {
        let mut memory = VirtualMemory::new(0);
        calls.iter().for_each(|one| memory.called(*one));
        let rows = memory.settle(0, true);
        assert!(rows.iter().all(|row| row.device == Some(3) && row.stack == 5));
        rows.iter().map(|row| (row.time_ns, row.address, row.free)).collect()
    }

    #[test]
    fn memory_is_freed_with_its_last_mapping() {
        // PyTorch makes its calls in this order, from two threads. The record of the last call is
        // read first.
        let calls = [
            call(Mapping::Unmap, 50, 0x9000, 2 << 20, 0),
            create(10, 77),
            call(Mapping::Map, 20, 0x9000, 2 << 20, 77),
            call(Mapping::Release, 30, 77, 0, 0),
        ];
        assert_eq!(rows(&calls), [(10, 77, false), (50, 77, true)]);
    }

    #[test]
    fn memory_is_freed_with_its_last_reference() {
        let calls = [
            create(10, 77),
            call(Mapping::Map, 20, 0x9000, 2 << 20, 77),
            call(Mapping::Retain, 25, 77, 0, 0),
            call(Mapping::Unmap, 30, 0x9000, 2 << 20, 0),
            call(Mapping::Release, 40, 77, 0, 0),
            call(Mapping::Release, 60, 77, 0, 0),
        ];
        assert_eq!(rows(&calls), [(10, 77, false), (60, 77, true)]);
    }

    #[test]
    fn a_reused_handle_is_another_block() {
        let calls = [
            create(10, 77),
            call(Mapping::Map, 20, 0x9000, 2 << 20, 77),
            call(Mapping::Release, 30, 77, 0, 0),
            create(40, 77),
            call(Mapping::Release, 50, 77, 0, 0),
            call(Mapping::Unmap, 60, 0x9000, 2 << 20, 0),
        ];
        let wanted = [(10, 77, false), (40, 78, false), (50, 78, true), (60, 77, true)];
        assert_eq!(rows(&calls), wanted);
    }

    #[test]
    fn imported_memory_has_no_rows() {
        let calls = [
            call(Mapping::Import, 10, 77, 0, 0),
            call(Mapping::Map, 20, 0x9000, 2 << 20, 77),
            call(Mapping::Unmap, 30, 0x9000, 2 << 20, 0),
            call(Mapping::Release, 40, 77, 0, 0),
        ];
        assert_eq!(rows(&calls), []);
    }
}
