//! Which call started which work: both carry the same correlation.

use rustc_hash::FxHashSet;

use super::rows::{HostSpan, StreamKey, Work};

/// No launch.
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
    /// trace does not say whose device work is.
    pub fn of(calls: &[HostSpan], work: &[Work], streams: &[StreamKey]) -> Launches {
        let mut keys: Vec<(u64, u32, u32)> = Vec::with_capacity(calls.len());
        for (call, at) in calls.iter().zip(0..) {
            keys.extend(call.correlation.get().map(|number| (number, call.process, at)));
        }
        // Correlations are given in order, so that this is nearly sorted already.
        keys.sort();
        keys.dedup_by_key(|key| (key.0, key.1));
        let callers: FxHashSet<u32> = keys.iter().map(|key| key.1).collect();
        let mut wanted: Vec<(u64, u32, u32)> = Vec::with_capacity(work.len());
        for (row, at) in work.iter().zip(0..) {
            let process = streams[row.stream as usize].process;
            wanted.extend(row.correlation.get().map(|number| (number, process, at)));
        }
        wanted.sort();
        let mut call_of = vec![NONE; work.len()];
        let mut keys = keys.as_slice();
        for (number, process, at) in wanted {
            while keys.first().is_some_and(|key| key.0 < number) {
                keys = &keys[1..];
            }
            let strange = !callers.contains(&process);
            let mut same = keys.iter().take_while(|key| key.0 == number);
            if let Some(key) = same.find(|key| strange || key.1 == process) {
                call_of[at as usize] = key.2;
            }
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
        let mut next = starts.clone();
        let mut work = vec![0; starts[calls] as usize];
        for (call, at) in call_of.iter().zip(0..).filter(|(call, _)| **call != NONE) {
            work[next[*call as usize] as usize] = at;
            next[*call as usize] += 1;
        }
        Launches { call_of, starts, work }
    }

    /// The call that started a piece of work, as an index; none if it was not seen.
    pub fn call_of(&self, work: usize) -> Option<usize> {
        self.call_of.get(work).filter(|call| **call != NONE).map(|call| *call as usize)
    }

    /// The work that a call started, as indices in order of start; none for most calls.
    pub fn work_of(&self, call: usize) -> &[u32] {
        match (self.starts.get(call), self.starts.get(call + 1)) {
            (Some(from), Some(to)) => &self.work[*from as usize..*to as usize],
            _ => &[],
        }
    }
}
