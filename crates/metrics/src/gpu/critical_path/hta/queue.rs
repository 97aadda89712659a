//! Counts how many pieces of work were in a stream's queue when a piece of work was launched, and
//! when it started.

use rustc_hash::FxHashMap;
use tprof_rank::{RankTrace, StreamIndex};
use tprof_trace::calls::function;

use super::events::Events;

/// Names of the calls that count as launches.
const LAUNCHES: [&str; 11] = [
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cuLaunchKernel",
    "cudaMemcpyAsync",
    "cudaMemsetAsync",
    "runFunction - job_prep_and_submit_for_execution",
    "hipLaunchKernel",
    "hipExtModuleLaunchKernel",
    "hipMemsetAsync",
    "hipMemcpyAsync",
    "hipMemcpyWithStream",
];

/// A launch whose work was recorded.
#[derive(Clone, Copy, Debug)]
pub struct SeenLaunch {
    pub call: u32,
    pub start_ns: u64,
    pub process: u32,
    pub thread: u32,
    /// Number of the stream on which the work ran; `device` is that stream's device.
    pub stream: u64,
    pub device: u32,
    /// Index of the device row.
    pub row: u32,
}

/// Returns the launches with recorded work, in order of start.
pub fn launches(rank: &RankTrace, events: &Events) -> Vec<SeenLaunch> {
    let mut is_launch = FxHashMap::default();
    let mut found = Vec::new();
    for (call, at) in rank.calls.iter().zip(0..) {
        let named = is_launch
            .entry(call.name)
            .or_insert_with(|| LAUNCHES.contains(&function(rank.name(call.name))));
        let row = events.device_of_call.get(&at).filter(|_| *named);
        let stream = row.and_then(|row| events.device[*row as usize].stream);
        if let (Some(&row), Some(stream)) = (row, stream) {
            let key = rank.streams[stream as usize];
            found.push(SeenLaunch {
                call: at,
                start_ns: call.start_ns,
                process: call.process,
                thread: call.thread,
                stream: key.stream,
                device: key.device,
                row,
            });
        }
    }
    found
}

/// Lengths of the queues. `at_call` contains the length at each launch, including that launch.
/// `at_row` contains the length when each device row starts, without that row; `None` if the row's
/// launch wasn't recorded.
pub struct QueueLengths {
    at_call: FxHashMap<u32, i64>,
    at_row: Vec<Option<i64>>,
}

impl QueueLengths {
    /// Counts the queues of these launches.
    pub fn of(rank: &RankTrace, events: &Events, launches: &[SeenLaunch]) -> QueueLengths {
        let number = |stream: StreamIndex| rank.streams[stream as usize].stream;
        // Changes: the time, whether a row starts, the index of the call or row, and the stream. At
        // the same time, calls come before rows.
        let mut changes: Vec<(u64, bool, u32, u64)> = Vec::new();
        let launched: FxHashMap<u32, ()> = launches.iter().map(|l| (l.call, ())).collect();
        for (row, at) in events.device.iter().zip(0..) {
            let (Some(stream), Some(call)) = (row.stream, row.call) else { continue };
            if launched.contains_key(&call) {
                changes.push((rank.calls[call as usize].start_ns, false, call, number(stream)));
                changes.push((row.start_ns, true, at, number(stream)));
            }
        }
        changes.sort_unstable();
        let mut lengths: FxHashMap<u64, i64> = FxHashMap::default();
        let mut queue =
            QueueLengths { at_call: FxHashMap::default(), at_row: vec![None; events.device.len()] };
        for (_, is_row, at, stream) in changes {
            let length = lengths.entry(stream).or_default();
            if is_row {
                *length -= 1;
                queue.at_row[at as usize] = Some(*length);
            } else {
                *length += 1;
                queue.at_call.insert(at, *length);
            }
        }
        queue
    }

    /// Whether a row was the only one in its stream's queue from its launch to its start.
    pub fn was_alone(&self, call: u32, row: u32) -> bool {
        self.at_call.get(&call) == Some(&1) && self.at_row[row as usize] == Some(0)
    }
}
