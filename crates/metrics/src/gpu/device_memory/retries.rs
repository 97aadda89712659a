//! Finds near misses: calls for device memory that failed, where the same thread's next one
//! succeeded. In between, a caching allocator gives back what it has cached.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde_json::Value;
use tprof_rank::RankTrace;
use tprof_rank::call_names::is_device_allocation;
use tprof_trace::calls::function;
use tprof_trace::model::{CallStatus, DeviceAllocation, NameId, SpanKind, ThreadIndex};

use super::OutOfMemory;
use super::code_line::{CodeLine, CodeLines};
use super::held_at::is_taken;

/// CUDA's status for a lack of memory, of the runtime and of the driver.
const OUT_OF_MEMORY: u32 = 2;

/// A request that the device had no memory for at first.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Retry {
    /// The thread that asked.
    pub thread: ThreadIndex,
    /// The device; `None` if it isn't known.
    pub device: Option<u32>,
    /// When the first call began.
    pub time_ns: u64,
    /// From then until a call had succeeded.
    pub duration_ns: u64,
    /// Number of calls that failed before it.
    pub failures: u64,
    /// Bytes that the last of them asked for.
    pub asked: Option<u64>,
    /// Bytes that the thread gave back in between, and their blocks.
    pub freed_bytes: u64,
    pub frees: u64,
    /// The line of the program that asked.
    pub line: Option<CodeLine>,
}

/// Calls of a thread that failed, since its last success.
#[derive(Default)]
struct Failing {
    first_ns: u64,
    failures: u64,
    last: CallStatus,
}

/// Returns the retries of a rank, in order of time. `rows` has its changes of memory with the sizes
/// of frees, in order of time, and `errors` the requests that failed for good.
pub(super) fn of_rank(
    rank: &RankTrace<'_>,
    rows: &[DeviceAllocation],
    errors: &[OutOfMemory],
) -> Vec<Retry> {
    let mut takes: FxHashMap<NameId, bool> = FxHashMap::default();
    let mut is_request = |call: &CallStatus| {
        matches!(call.kind, SpanKind::Runtime | SpanKind::Driver)
            && *takes.entry(call.name).or_insert_with(|| {
                let name = rank.name(call.name);
                let is_free = ["Free", "Release", "Unmap", "MemMap"];
                is_device_allocation(name)
                    && !is_free.iter().any(|word| function(name).contains(word))
            })
    };
    let mut calls: Vec<CallStatus> = rank.file.blocks::<CallStatus>().flatten().collect();
    calls.retain(|call| call.status.is_some() && is_request(call));
    if calls.iter().all(|call| call.status != Some(OUT_OF_MEMORY)) {
        return Vec::new();
    }
    calls.sort_by_key(|call| call.start_ns);
    let mut lines = CodeLines::new(rank.file);
    // By thread and function, because a call of the runtime contains one of the driver.
    let mut failing: BTreeMap<(ThreadIndex, NameId), Failing> = BTreeMap::new();
    let mut retries: Vec<Retry> = Vec::new();
    for call in calls {
        let key = (call.thread, call.name);
        match call.status {
            Some(OUT_OF_MEMORY) => {
                let of = failing.entry(key).or_default();
                if of.failures == 0 {
                    of.first_ns = call.start_ns;
                }
                (of.failures, of.last) = (of.failures + 1, call);
            }
            Some(0) => {
                let Some(of) = failing.remove(&key) else { continue };
                let end_ns = call.start_ns.saturating_add(call.duration_ns);
                let is_given_up = errors.iter().any(|error| {
                    let is_within = |at| (of.first_ns..=end_ns).contains(&at);
                    error.process == call.process
                        && error.thread.is_none_or(|thread| thread == call.thread)
                        && error.time_ns.is_some_and(is_within)
                });
                if !is_given_up {
                    retries.push(retry(rank, rows, &of, &call, &mut lines));
                }
            }
            _ => {}
        }
    }
    outermost(retries)
}

fn retry(
    rank: &RankTrace<'_>,
    rows: &[DeviceAllocation],
    of: &Failing,
    success: &CallStatus,
    lines: &mut CodeLines<'_>,
) -> Retry {
    let end_ns = success.start_ns.saturating_add(success.duration_ns);
    let first = rows.partition_point(|row| row.time_ns < of.first_ns);
    let within = rows[first..].iter().take_while(|row| row.time_ns <= end_ns);
    let own = || within.clone().filter(|row| row.thread == of.last.thread && is_taken(row));
    // The memory is recorded when the call has returned.
    let taken = rows[first..].iter().find(|row| {
        let is_own = row.thread == of.last.thread && row.time_ns >= success.start_ns;
        is_own && is_taken(row) && !row.free
    });
    let freed = || own().filter(|row| row.free);
    let args: Value = serde_json::from_str(rank.name(of.last.args)).unwrap_or_default();
    let line = |call: &CallStatus, lines: &mut CodeLines<'_>| lines.of(call.process, call.stack);
    Retry {
        thread: of.last.thread,
        device: taken.and_then(|row| row.device),
        time_ns: of.first_ns,
        duration_ns: end_ns.saturating_sub(of.first_ns),
        failures: of.failures,
        asked: args["bytes"].as_u64(),
        freed_bytes: freed().filter_map(|row| row.bytes).sum(),
        frees: freed().count() as u64,
        line: line(&of.last, lines).or_else(|| line(success, lines)),
    }
}

/// Leaves out retries of the driver within those of the runtime.
fn outermost(mut retries: Vec<Retry>) -> Vec<Retry> {
    retries.sort_by_key(|one| (one.thread, one.time_ns, Reverse(one.duration_ns)));
    let mut outer: Option<(ThreadIndex, u64)> = None;
    retries.retain(|one| {
        let end_ns = one.time_ns.saturating_add(one.duration_ns);
        let is_within = outer.is_some_and(|(of, until_ns)| of == one.thread && end_ns <= until_ns);
        if !is_within {
            outer = Some((one.thread, end_ns));
        }
        !is_within
    });
    retries.sort_by_key(|one| one.time_ns);
    retries
}
