//! Finds near misses: calls for device memory that failed, where the same thread's next one
//! succeeded. In between, a caching allocator gives back what it has cached.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde_json::Value;
use tprof_rank::RankTrace;
use tprof_rank::call_names::is_device_allocation;
use tprof_trace::calls::function;
use tprof_trace::model::{
    CallStatus, DeviceAllocation, NameId, ProcessIndex, SpanKind, ThreadIndex,
};

use super::held_at::is_taken;
use super::pieces::{Fit, FreePieces, Request, at_requests};
use super::{OutOfMemory, failed_requests, frees, resets};
use crate::host::code_line::{CodeLine, CodeLines};

/// CUDA's status for a lack of memory, of the runtime and of the driver.
const OUT_OF_MEMORY: u32 = 2;

/// A request that the device had no memory for at first.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// The process that asked.
    pub process: ProcessIndex,
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
    /// Bytes that the thread gave back in between.
    pub freed_bytes: u64,
    /// Number of these blocks.
    pub frees: u64,
    /// The line of the program that asked.
    pub line: Option<CodeLine>,
    /// What was free within the allocator's segments before the first call; `None` if they weren't
    /// all recorded.
    pub pieces: Option<FreePieces>,
}

impl Retry {
    /// Whether the request would have fit into what was free; `None` if that isn't known.
    pub fn fit(&self) -> Option<Fit> {
        Some(self.pieces?.fit(self.asked?))
    }

    /// When the last call ended.
    pub fn end_ns(&self) -> u64 {
        self.time_ns.saturating_add(self.duration_ns)
    }
}

/// Returns the requests of a rank that the device had no memory for at first, in order of time. This
/// needs [`Needs::ALLOCATIONS`](tprof_rank::Needs::ALLOCATIONS).
pub fn retried_requests(rank: &RankTrace<'_>) -> Vec<Retry> {
    let placed = frees::place(&rank.allocations);
    let rows = resets::expand(&placed).0;
    of_rank(rank, (&rows, &frees::sizes(&rows)), &failed_requests(rank))
}

/// Calls of a thread that failed, since its last success.
#[derive(Default)]
struct Failing {
    first_ns: u64,
    failures: u64,
    last: CallStatus,
}

/// Returns the retries of a rank, in order of time. `rows` has its changes of memory in order of
/// time, with their bytes, and `errors` the requests that failed for good.
pub(super) fn of_rank(
    rank: &RankTrace<'_>,
    rows: (&[DeviceAllocation], &[u64]),
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
    let all = rank.file.blocks::<CallStatus>().flatten();
    let mut calls: Vec<CallStatus> =
        all.filter(|call| call.status.is_some() && is_request(call)).collect();
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
    let mut retries = outermost(retries);
    let request = |retry: &Retry| Request {
        process: retry.process,
        device: retry.device,
        time_ns: Some(retry.time_ns),
        reserved: None,
    };
    let requests: Vec<Request> = retries.iter().map(request).collect();
    let pieces = at_requests(rows.0, &requests);
    for (retry, pieces) in retries.iter_mut().zip(pieces) {
        retry.pieces = pieces;
    }
    retries
}

fn retry(
    rank: &RankTrace<'_>,
    (rows, sizes): (&[DeviceAllocation], &[u64]),
    of: &Failing,
    success: &CallStatus,
    lines: &mut CodeLines<'_>,
) -> Retry {
    let end_ns = success.start_ns.saturating_add(success.duration_ns);
    let first = rows.partition_point(|row| row.time_ns < of.first_ns);
    let after = rows[first..].iter().zip(&sizes[first..]);
    let own = after.filter(|(row, _)| row.thread == of.last.thread && is_taken(row));
    // The memory that the call took is recorded when the call has returned.
    let taken = own.clone().find(|(row, _)| row.time_ns >= success.start_ns && !row.free);
    let freed: Vec<u64> = own
        .take_while(|(row, _)| row.time_ns <= end_ns)
        .filter(|(row, _)| row.free)
        .map(|(_, bytes)| *bytes)
        .collect();
    let args: Value = serde_json::from_str(rank.name(of.last.args)).unwrap_or_default();
    let line = |call: &CallStatus, lines: &mut CodeLines<'_>| lines.of(call.process, call.stack);
    Retry {
        process: success.process,
        thread: of.last.thread,
        device: taken.and_then(|(row, _)| row.device),
        time_ns: of.first_ns,
        duration_ns: end_ns.saturating_sub(of.first_ns),
        failures: of.failures,
        asked: args["bytes"].as_u64(),
        freed_bytes: freed.iter().sum(),
        frees: freed.len() as u64,
        line: line(&of.last, lines).or_else(|| line(success, lines)),
        pieces: None,
    }
}

/// Leaves out retries of the driver within those of the runtime.
fn outermost(mut retries: Vec<Retry>) -> Vec<Retry> {
    retries.sort_by_key(|one| (one.thread, one.time_ns, Reverse(one.duration_ns)));
    let mut outer: Option<(ThreadIndex, u64)> = None;
    retries.retain(|one| {
        let end_ns = one.end_ns();
        let is_within = outer.is_some_and(|(of, until_ns)| of == one.thread && end_ns <= until_ns);
        if !is_within {
            outer = Some((one.thread, end_ns));
        }
        !is_within
    });
    retries.sort_by_key(|one| one.time_ns);
    retries
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_rank::Needs;
    use tprof_trace::model::{Allocator, MemoryKind, Span};

    use super::*;

    /// Adds a call of the runtime with the driver's within it.
    fn call(made: &mut Fixture, thread: ThreadIndex, start_ns: u64, status: u32) {
        let span = |start_ns, duration_ns, kind| Span {
            start_ns,
            duration_ns,
            thread,
            kind,
            status: Some(status),
            ..Span::default()
        };
        made.span(span(start_ns, 4, SpanKind::Runtime), "cudaMalloc");
        made.span(span(start_ns + 1, 2, SpanKind::Driver), "cuMemAlloc_v2");
    }

    fn memory(thread: ThreadIndex, time_ns: u64, bytes: u64, free: bool) -> DeviceAllocation {
        DeviceAllocation {
            time_ns,
            thread,
            allocator: Allocator::Library,
            kind: MemoryKind::Device,
            device: Some(1),
            bytes: Some(bytes),
            free,
            ..DeviceAllocation::default()
        }
    }

    #[test]
    fn calls_that_fail_before_a_success_are_one_retry_unless_the_request_was_given_up() {
        let mut made = Fixture::new();
        for (at, status) in [(0, 0), (10, 2), (20, 2), (30, 0)] {
            call(&mut made, 0, at, status);
        }
        // This thread gave up, and asked for something else.
        call(&mut made, 1, 12, 2);
        call(&mut made, 1, 32, 0);
        // These failed for another reason, or never succeeded.
        call(&mut made, 2, 40, 1);
        call(&mut made, 2, 50, 0);
        call(&mut made, 2, 60, 2);
        let rows = [memory(0, 16, 100, true), memory(1, 17, 7, true), memory(0, 35, 300, false)];
        let error = OutOfMemory {
            process: 0,
            device: Some(1),
            order: 0,
            time_ns: Some(15),
            thread: Some(1),
            asked: 300,
            allocated: None,
            reserved: None,
            device_free: None,
            stack: 0,
            line: None,
            pieces: None,
        };
        let file = made.finish();
        let found =
            of_rank(&RankTrace::load(&file, Needs::ALLOCATIONS), (&rows, &[100, 7, 300]), &[error]);
        let retry = Retry {
            process: 0,
            thread: 0,
            device: Some(1),
            time_ns: 10,
            duration_ns: 24,
            failures: 2,
            asked: None,
            freed_bytes: 100,
            frees: 1,
            line: None,
            pieces: None,
        };
        assert_eq!(found, [retry]);
    }
}
