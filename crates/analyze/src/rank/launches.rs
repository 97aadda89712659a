//! Joins calls with the work that they started: both carry the same correlation.

use rustc_hash::FxHashSet;

use super::rows::{HostSpan, StreamKey, Work};
use crate::base::search::partition_near;

/// The index that stands for no launch.
const NONE: u32 = u32::MAX;

/// Calls and the work that they started.
#[derive(Clone, Debug, Default)]
pub struct Launches {
    /// Per work: its call, or [`NONE`].
    call_of: Vec<u32>,
    /// Per call: where its work begins in `work`; one more at the end.
    starts: Vec<u32>,
    /// Indices of work, call by call, in the order in which it ran.
    work: Vec<u32>,
}

impl Launches {
    /// Joins calls and work, each in order of start. Where several calls carry one
    /// correlation, the one that began first is the launch: a runtime call lies
    /// around the driver's.
    ///
    /// Work of a process without any such call may be any other's: an imported
    /// trace does not record the process of device work.
    pub fn of(calls: &[HostSpan], work: &[Work], streams: &[StreamKey]) -> Launches {
        let mut keys: Vec<(u64, u32, u32)> = Vec::with_capacity(calls.len());
        for (call, at) in calls.iter().zip(0..) {
            keys.extend(call.correlation.get().map(|number| (number, call.process, at)));
        }
        // Correlations are given in order, so that the keys are nearly sorted already.
        keys.sort();
        keys.dedup_by_key(|key| (key.0, key.1));
        let callers: FxHashSet<u32> =
            keys.chunk_by(|a, b| a.1 == b.1).map(|same| same[0].1).collect();
        let (mut call_of, mut near) = (Vec::with_capacity(work.len()), 0);
        for row in work {
            let process = streams[row.stream as usize].process;
            let strange = !callers.contains(&process);
            let launch = row.correlation.get().and_then(|number| {
                // Work runs about in the order in which it was launched.
                near = partition_near(&keys, near, |key| key.0 < number);
                let mut same = keys[near..].iter().take_while(|key| key.0 == number);
                same.find(|key| strange || key.1 == process)
            });
            call_of.push(launch.map_or(NONE, |key| key.2));
        }
        Launches::ordered(call_of, calls.len())
    }

    fn ordered(call_of: Vec<u32>, calls: usize) -> Launches {
        let mut starts = vec![0_u32; calls + 1];
        for call in call_of.iter().filter(|call| **call != NONE) {
            starts[*call as usize + 1] += 1;
        }
        for at in 0..calls {
            starts[at + 1] += starts[at];
        }
        // From the last piece of work on, each call's end moves down to its start.
        let mut work = vec![0; starts[calls] as usize];
        starts.rotate_left(1);
        starts[calls] = work.len() as u32;
        for (at, call) in call_of.iter().enumerate().rev().filter(|(_, call)| **call != NONE) {
            let end = &mut starts[*call as usize];
            *end -= 1;
            work[*end as usize] = at as u32;
        }
        Launches { call_of, starts, work }
    }

    /// Index of the call that started a piece of work; `None` if it was not recorded.
    pub fn call_of(&self, work: usize) -> Option<usize> {
        self.call_of.get(work).filter(|call| **call != NONE).map(|call| *call as usize)
    }

    /// The work that a call started, as indices in order of start; empty for most calls.
    pub fn work_of(&self, call: usize) -> &[u32] {
        match (self.starts.get(call), self.starts.get(call + 1)) {
            (Some(from), Some(to)) => &self.work[*from as usize..*to as usize],
            _ => &[],
        }
    }
}
