//! Finds the time of each collective, which is the time of its kernel.
//!
//! A collective's call returns long before the collective is over, so the call's time is not used
//! if the kernel is known. Collectives are few compared with kernels, so they are sorted in memory.

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::hash::{fnv1a, joined};
use tprof_trace::model::{Collective, Kernel, ProcessIndex};

use crate::Window;

/// A collective with the time of its kernel, or of its call if the kernel is unknown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedCollective {
    pub row: Collective,
    pub start_ns: u64,
    pub end_ns: u64,
}

/// Returns an id of an operation that is the same on all ranks that take part in it, and that
/// differs from the ids of arrows within a rank. `None` if the communicator or its count of
/// operations is unknown. The id also depends on the operation's name, because a library may count
/// the operations of each name separately.
pub(crate) fn shared_id(trace: &TraceFile, row: &Collective) -> Option<u64> {
    let name = fnv1a(trace.name(row.name).as_bytes());
    Some(joined(&[row.communicator?, name, row.sequence?]) | 1 << 63)
}

/// Returns the collectives that ran in a window, in order of time.
pub(crate) fn timed_collectives(trace: &TraceFile, window: Window) -> Vec<TimedCollective> {
    let rows: Vec<Collective> = trace.blocks::<Collective>().flatten().collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let mut kernels: FxHashMap<(ProcessIndex, u64), Option<(u64, u64)>> =
        rows.iter().filter_map(|row| Some(((row.process, row.correlation?), None))).collect();
    for kernel in trace.blocks::<Kernel>().flatten() {
        if let Some(correlation) = kernel.correlation
            && let Some(time) = kernels.get_mut(&(kernel.process, correlation))
        {
            let end_ns = kernel.start_ns.saturating_add(kernel.duration_ns);
            time.get_or_insert((kernel.start_ns, end_ns));
        }
    }
    let place = |row: Collective| {
        let kernel = row.correlation.and_then(|c| *kernels.get(&(row.process, c))?);
        let call_ns = (row.start_ns, row.start_ns.saturating_add(row.duration_ns.unwrap_or(0)));
        let (start_ns, end_ns) = kernel.unwrap_or(call_ns);
        TimedCollective { row, start_ns, end_ns }
    };
    let mut timed_collectives: Vec<TimedCollective> = rows.into_iter().map(place).collect();
    timed_collectives.retain(|found| window.touches(found.start_ns, found.end_ns));
    timed_collectives.sort_by_key(|found| (found.start_ns, std::cmp::Reverse(found.end_ns)));
    timed_collectives
}
