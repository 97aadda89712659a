//! Finds the requests for device memory that were made again, and the calls of some threads for
//! such memory.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_metrics::gpu::device_memory::{Retry, retried_requests};
use tprof_trace::model::{DeviceAllocation, NameId, ThreadIndex};

use super::Scene;
use super::calls::is_device_allocation;

impl Scene<'_> {
    /// Returns the requests that the device had no memory for at first, by thread and time.
    pub fn retries(&self) -> &[Retry] {
        self.retries.get_or_init(|| {
            let mut retries = retried_requests(self.rank);
            retries.sort_by_key(|retry| (retry.thread, retry.time_ns));
            retries
        })
    }

    /// Returns the request during which this change of memory was made, if it was made again.
    pub fn retry_of(&self, row: &DeviceAllocation) -> Option<&Retry> {
        let retries = self.retries();
        let until = (row.thread, row.time_ns);
        let after = retries.partition_point(|retry| (retry.thread, retry.time_ns) <= until);
        let last = retries[..after].last()?;
        (last.thread == row.thread && row.time_ns <= last.end_ns()).then_some(last)
    }

    /// Returns the calls of these threads that take or give back device memory.
    pub fn device_allocations_of(&self, threads: &FxHashSet<ThreadIndex>) -> Vec<usize> {
        let mut names: FxHashMap<NameId, bool> = FxHashMap::default();
        let mut is_named =
            |id| *names.entry(id).or_insert_with(|| is_device_allocation(self.rank.name(id)));
        let calls = self.rank.calls.iter().enumerate();
        calls
            .filter(|(_, call)| threads.contains(&call.thread) && is_named(call.name))
            .map(|(at, _)| at)
            .collect()
    }
}
