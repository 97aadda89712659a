//! Follows the memory of contexts that a program creates itself (`cuCtxCreate`). When such a
//! context is destroyed (`cuCtxDestroy`), its blocks that the program has not freed end with it.
//! Memory of pools and of the virtual memory management belongs to no context.
//!
//! Rings are read one after the other, so changes wait until all earlier records have been read.
//! Contexts are identified by the driver's handle (`CUcontext`), blocks by their device address.

use super::virtual_memory::LATE_NS;
use std::collections::HashMap;
use tprof_trace::model::{DeviceAllocation, StackId, ThreadIndex};

#[derive(Clone, Copy, Debug)]
enum Change {
    /// A block was allocated in a context.
    Allocated { context: u64, row: DeviceAllocation },
    /// The program freed the block at this address.
    Freed { address: u64 },
    /// A thread destroyed a context.
    ContextDestroyed { context: u64, thread: ThreadIndex },
}

/// The memory of contexts that the program created itself.
#[derive(Debug, Default)]
pub struct ContextMemory {
    /// Changes that wait, each with its time, `CLOCK_MONOTONIC` ns.
    changes: Vec<(u64, Change)>,
    /// The context and the row of each live block, by the block's address.
    live: HashMap<u64, (u64, DeviceAllocation)>,
}

impl ContextMemory {
    /// Adds a block that was allocated in a context.
    pub fn allocated(&mut self, context: u64, row: DeviceAllocation) {
        self.changes.push((row.time_ns, Change::Allocated { context, row }));
    }

    /// Notes that the program freed a block.
    pub fn freed(&mut self, address: u64, time_ns: u64) {
        // Most processes create no contexts. For them nothing is stored.
        if !(self.changes.is_empty() && self.live.is_empty()) {
            self.changes.push((time_ns, Change::Freed { address }));
        }
    }

    /// Notes that a call which began at `time_ns` destroyed a context. Returns the device of the
    /// context's memory, if the context had any.
    pub fn context_destroyed(
        &mut self,
        context: u64,
        thread: ThreadIndex,
        time_ns: u64,
    ) -> Option<u32> {
        let waiting = self.changes.iter().filter_map(|(_, change)| match change {
            Change::Allocated { context, row } => Some((*context, row)),
            _ => None,
        });
        let blocks = waiting.chain(self.live.values().map(|(context, row)| (*context, row)));
        let of_context = |(of, row): (u64, &DeviceAllocation)| row.device.filter(|_| of == context);
        let device = blocks.into_iter().find_map(of_context);
        self.changes.push((time_ns, Change::ContextDestroyed { context, thread }));
        device
    }

    /// Returns a row for each block that was freed because its context was destroyed. Handles the
    /// changes for which all earlier records must have arrived by `now_ns`; with `last`, which says
    /// that no more records will come, all of them.
    pub fn settle(&mut self, now_ns: u64, last: bool) -> Vec<DeviceAllocation> {
        if self.changes.is_empty() {
            return Vec::new();
        }
        self.changes.sort_by_key(|(time_ns, _)| *time_ns);
        let until = if last { u64::MAX } else { now_ns.saturating_sub(LATE_NS) };
        let count = self.changes.partition_point(|(time_ns, _)| *time_ns <= until);
        let mut rows = Vec::new();
        for (time_ns, change) in self.changes.drain(..count) {
            match change {
                Change::Allocated { context, row } => {
                    self.live.insert(row.address, (context, row));
                }
                Change::Freed { address } => {
                    self.live.remove(&address);
                }
                Change::ContextDestroyed { context, thread } => {
                    let freed = self.live.extract_if(|_, (of, _)| *of == context);
                    let (free, bytes, stack) = (true, None, StackId::default());
                    rows.extend(freed.map(|(_, (_, row))| DeviceAllocation {
                        time_ns,
                        thread,
                        free,
                        bytes,
                        stack,
                        ..row
                    }));
                }
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(address: u64, time_ns: u64) -> DeviceAllocation {
        let (device, bytes) = (Some(1), Some(64));
        DeviceAllocation { address, time_ns, device, bytes, ..DeviceAllocation::default() }
    }

    #[test]
    fn a_block_that_is_not_freed_ends_with_its_context() {
        let mut all = ContextMemory::default();
        // The record of the destruction arrives before those of the allocations, and at 60 ns a new
        // context has the handle of the old one.
        assert_eq!(all.context_destroyed(7, 3, 50), None);
        for (context, address, time_ns) in [(7, 1, 10), (7, 2, 11), (8, 3, 12), (7, 4, 60)] {
            all.allocated(context, row(address, time_ns));
        }
        all.freed(2, 20);
        let freed = all.settle(100, true);
        assert_eq!(freed.len(), 1, "{freed:?}");
        assert_eq!((freed[0].address, freed[0].time_ns, freed[0].thread), (1, 50, 3));
        assert!(freed[0].free && freed[0].bytes.is_none());
        assert_eq!(all.context_destroyed(7, 0, 200), Some(1));
        assert!(all.settle(300, false).is_empty(), "earlier records may still arrive");
        assert_eq!(all.settle(300, true).iter().map(|row| row.address).collect::<Vec<_>>(), [4]);
        assert_eq!(all.live.len(), 1);
    }

    #[test]
    fn without_own_contexts_nothing_is_stored() {
        let mut all = ContextMemory::default();
        (0..100).for_each(|address| all.freed(address, address));
        assert!(all.changes.is_empty());
    }
}
