//! Follows the memory of contexts that a program creates itself (`cuCtxCreate`). When such a
//! context is destroyed (`cuCtxDestroy`), its blocks that the program has not freed end with it.
//! Memory of pools and of the virtual memory management belongs to no context.
//!
//! Rings are read one after the other, so changes wait until all earlier records have been read.

use super::virtual_memory::LATE_NS;
use std::collections::HashMap;
use tprof_trace::model::{DeviceAllocation, StackId, ThreadIndex};

#[derive(Clone, Copy, Debug)]
enum Change {
    /// Memory was allocated in a context: the context, and the row of the allocation.
    Taken(u64, DeviceAllocation),
    /// The memory at this address was freed.
    Given(u64),
    /// A thread destroyed a context: the context, and the thread.
    Ended(u64, ThreadIndex),
}

/// The memory of contexts that the program created itself.
#[derive(Debug, Default)]
pub struct ContextMemory {
    changes: Vec<(u64, Change)>,
    /// The context and the row of each live block, by the block's address.
    living: HashMap<u64, (u64, DeviceAllocation)>,
}

impl ContextMemory {
    /// Adds a block that was allocated in a context.
    pub fn taken(&mut self, context: u64, row: DeviceAllocation) {
        self.changes.push((row.time_ns, Change::Taken(context, row)));
    }

    /// Notes that memory was freed.
    pub fn given(&mut self, address: u64, time_ns: u64) {
        // Most processes create no contexts. For them nothing is stored.
        if !(self.changes.is_empty() && self.living.is_empty()) {
            self.changes.push((time_ns, Change::Given(address)));
        }
    }

    /// Notes that a call which began at `time_ns` destroyed a context. Returns the device of the
    /// context's memory, if the context had any.
    pub fn ended(&mut self, context: u64, thread: ThreadIndex, time_ns: u64) -> Option<u32> {
        let of_changes = self.changes.iter().filter_map(|(_, change)| match change {
            Change::Taken(of, row) => Some((of, row)),
            _ => None,
        });
        let all = of_changes.chain(self.living.values().map(|(of, row)| (of, row)));
        let device = all.filter(|(of, _)| **of == context).find_map(|(_, row)| row.device);
        self.changes.push((time_ns, Change::Ended(context, thread)));
        device
    }

    /// Returns the frees of memory that ended with its context. Changes are handled once all
    /// earlier records must have arrived, or with `last`.
    pub fn settle(&mut self, now_ns: u64, last: bool) -> Vec<DeviceAllocation> {
        if self.changes.is_empty() {
            return Vec::new();
        }
        self.changes.sort_by_key(|(time_ns, _)| *time_ns);
        let until = if last { u64::MAX } else { now_ns.saturating_sub(LATE_NS) };
        let ripe = self.changes.partition_point(|(time_ns, _)| *time_ns <= until);
        let mut rows = Vec::new();
        for (time_ns, change) in self.changes.drain(..ripe) {
            match change {
                Change::Taken(context, row) => {
                    self.living.insert(row.address, (context, row));
                }
                Change::Given(address) => {
                    self.living.remove(&address);
                }
                Change::Ended(context, thread) => {
                    let gone = self.living.extract_if(|_, (of, _)| *of == context);
                    let (free, bytes, stack) = (true, None, StackId::default());
                    rows.extend(gone.map(|(_, (_, row))| DeviceAllocation {
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
    fn memory_that_is_not_freed_ends_with_its_context() {
        let mut all = ContextMemory::default();
        // A thread's record comes late, and a new context is created at the address of the old one.
        assert_eq!(all.ended(7, 3, 50), None);
        for (context, address, time_ns) in [(7, 1, 10), (7, 2, 11), (8, 3, 12), (7, 4, 60)] {
            all.taken(context, row(address, time_ns));
        }
        all.given(2, 20);
        let gone = all.settle(100, true);
        assert_eq!(gone.len(), 1, "{gone:?}");
        assert_eq!((gone[0].address, gone[0].time_ns, gone[0].thread), (1, 50, 3));
        assert!(gone[0].free && gone[0].bytes.is_none());
        assert_eq!(all.ended(7, 0, 200), Some(1));
        assert!(all.settle(300, false).is_empty(), "earlier records may still arrive");
        assert_eq!(all.settle(300, true).iter().map(|row| row.address).collect::<Vec<_>>(), [4]);
        assert_eq!(all.living.len(), 1);
    }

    #[test]
    fn without_own_contexts_nothing_is_stored() {
        let mut all = ContextMemory::default();
        (0..100).for_each(|address| all.given(address, address));
        assert!(all.changes.is_empty());
    }
}
