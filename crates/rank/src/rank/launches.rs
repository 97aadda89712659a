//! Joins calls with the work that they launched. A call and its work have the same correlation.

use rustc_hash::FxHashSet;

use super::rows::{HostSpan, StreamKey, Work};
use crate::base::search::partition_near;

/// Stands for work without a recorded launch.
const NONE: u32 = u32::MAX;

/// The calls of a rank, and the work that each launched.
#[derive(Clone, Debug, Default)]
pub struct Launches {
    /// For each piece of work: the index of its call, or [`NONE`].
    call_of: Vec<u32>,
    /// For each call: the index in `work` at which its work begins; at the end, the length of
    /// `work`.
    starts: Vec<u32>,
    /// Indices of work, grouped by call. Within a call, they are in the order in which the work
    /// ran.
    work: Vec<u32>,
}

impl Launches {
    /// Joins calls and work, each in order of start. If several calls have the same correlation,
    /// the first one is the launch: a call of the runtime makes a call of the driver with the same
    /// correlation.
    ///
    /// If the process of some work made no calls with correlations, its work is matched with the
    /// calls of all processes. This happens in imported traces, which do not record the process of
    /// device work.
    pub fn of(calls: &[HostSpan], work: &[Work], streams: &[StreamKey]) -> Launches {
        let mut keys: Vec<(u64, u32, u32)> = Vec::with_capacity(calls.len());
        for (call, at) in calls.iter().zip(0..) {
            keys.extend(call.correlation.get().map(|number| (number, call.process, at)));
        }
        // Correlations are assigned in order, so the keys are nearly sorted already, and sorting is
        // fast.
        keys.sort();
        keys.dedup_by_key(|key| (key.0, key.1));
        let callers: FxHashSet<u32> =
            keys.chunk_by(|a, b| a.1 == b.1).map(|same| same[0].1).collect();
        let (mut call_of, mut near) = (Vec::with_capacity(work.len()), 0);
        for row in work {
            let process = streams[row.stream as usize].process;
            let strange = !callers.contains(&process);
            let launch = row.correlation.get().and_then(|number| {
                // Work runs roughly in the order in which it was launched, so the search starts at
                // the last match.
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
        // This loop starts with the last piece of work. Each call's entry begins as the end of its
        // range and moves down to the start.
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

    /// Index of the call that launched a piece of work; `None` if the call was not recorded.
    pub fn call_of(&self, work: usize) -> Option<usize> {
        self.call_of.get(work).filter(|call| **call != NONE).map(|call| *call as usize)
    }

    /// The work that a call launched, as indices in order of start; empty for most calls.
    pub fn work_of(&self, call: usize) -> &[u32] {
        match (self.starts.get(call), self.starts.get(call + 1)) {
            (Some(from), Some(to)) => &self.work[*from as usize..*to as usize],
            _ => &[],
        }
    }
}
