//! Reads the times when a framework's allocator had no memory for a block.

use serde_json::Value;
use tprof_rank::RankTrace;
use tprof_trace::model::{AllocatorEvent, ProcessIndex, StackId, ThreadIndex};

use super::pieces::{FreePieces, Request, at_requests};
use super::{frees, resets};
use crate::host::code_line::{CodeLine, CodeLines};

/// A request that failed for lack of device memory.
#[derive(Clone, Debug, PartialEq)]
pub struct OutOfMemory {
    /// The process that asked.
    pub process: ProcessIndex,
    /// The device; `None` for host memory.
    pub device: Option<u32>,
    /// Position among the allocator's events.
    pub order: u64,
    /// Time of the request; `None` if it isn't known.
    pub time_ns: Option<u64>,
    /// The thread that asked; `None` if it isn't known.
    pub thread: Option<ThreadIndex>,
    /// Bytes that were asked for.
    pub asked: u64,
    /// Bytes that the allocator had given out.
    pub allocated: Option<u64>,
    /// Bytes that the allocator had reserved.
    pub reserved: Option<u64>,
    /// Bytes that were free on the device.
    pub device_free: Option<u64>,
    /// Stack of the request; 0 if there is none.
    pub stack: StackId,
    /// The line of the program that asked.
    pub line: Option<CodeLine>,
    /// What was free within the allocator's segments; `None` if they weren't all recorded.
    pub pieces: Option<FreePieces>,
}

/// Returns the failed requests of a rank, in order of time. Their free pieces need
/// [`Needs::ALLOCATIONS`](tprof_rank::Needs::ALLOCATIONS).
pub fn failed_requests(rank: &RankTrace<'_>) -> Vec<OutOfMemory> {
    let mut lines = CodeLines::new(rank.file);
    let events = rank.file.blocks::<AllocatorEvent>().flatten();
    let mut found: Vec<OutOfMemory> = events
        .filter(|row| rank.name(row.action) == "oom")
        .map(|row| {
            let args: Value = serde_json::from_str(rank.name(row.args)).unwrap_or_default();
            OutOfMemory {
                process: row.process,
                device: row.device,
                order: row.order,
                time_ns: row.time_ns,
                thread: args["thread"].as_u64().and_then(|thread| u32::try_from(thread).ok()),
                asked: row.bytes,
                allocated: args["allocated"].as_u64(),
                reserved: args["reserved"].as_u64(),
                device_free: row.device_free_bytes,
                stack: row.stack,
                line: lines.of(row.process, row.stack),
                pieces: None,
            }
        })
        .collect();
    found.sort_by_key(|row| row.time_ns);
    if !found.is_empty() {
        let placed = frees::place(&rank.allocations);
        let request = |error: &OutOfMemory| Request {
            process: error.process,
            device: error.device,
            time_ns: error.time_ns,
            reserved: error.reserved,
        };
        let requests: Vec<Request> = found.iter().map(request).collect();
        let pieces = at_requests(&resets::expand(&placed).0, &requests);
        for (error, pieces) in found.iter_mut().zip(pieces) {
            error.pieces = pieces;
        }
    }
    found
}
