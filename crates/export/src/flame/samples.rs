//! Adds samples to trees, by stack: time on a core, and time spent waiting.

use rustc_hash::FxHashMap;
use tprof_trace::model::{ProcessIndex, Sample, StackId, ThreadIndex, ThreadState};

use super::labels::Labels;
use super::profile::{Measure, Profile};
use super::tree::{FrameKind, FrameTable};
use crate::rows::wanted;
use crate::{OpenRank, Written};

pub(crate) const MEASURES: [Measure; 3] = [
    Measure { label: "On a core", unit: "ns", about: "time of the samples" },
    Measure { label: "Waiting", unit: "ns", about: "time off the core of the samples, by cause" },
    Measure { label: "Samples", unit: "count", about: "stacks taken, running or waiting" },
];

/// Adds the samples of a file.
pub(crate) fn collect(
    part: &OpenRank<'_>,
    written: &mut Written,
    labels: &mut Labels<'_>,
    table: &mut FrameTable,
    profile: &mut Profile,
) {
    type Key = (ProcessIndex, ThreadIndex, StackId, ThreadState);
    let mut sums: FxHashMap<Key, (u64, u64)> = FxHashMap::default();
    for row in wanted::<Sample>(part, written) {
        let key = (row.process, row.thread, row.stack, row.state);
        let sum = sums.entry(key).or_default();
        sum.0 += row.weight_ns;
        sum.1 += 1;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_unstable_by_key(|(key, _)| *key);
    for ((process, thread, stack, state), (weight_ns, count)) in sums {
        let above = labels.above(process, Some(thread), table).to_vec();
        let mut node = profile.node(&above, labels.stack(process, stack, table));
        let measure = match waiting_for(state) {
            None => 0,
            Some(what) => {
                node = profile.tree.child(node, table.frame(FrameKind::Unknown, what, ""));
                1
            }
        };
        profile.estimate = true;
        profile.add(node, measure, weight_ns as f64);
        profile.add(node, 2, count as f64);
    }
}

/// Returns a frame's name for what a thread waits for; `None` if the thread runs.
pub(crate) fn waiting_for(state: ThreadState) -> Option<&'static str> {
    Some(match state {
        ThreadState::Running => return None,
        ThreadState::Runnable => "(waiting for a core)",
        ThreadState::Blocked => "(blocked, reason unknown)",
        ThreadState::Lock => "(waiting for a lock)",
        ThreadState::Io => "(waiting for input or output)",
        ThreadState::Sleep => "(sleeping)",
        ThreadState::Poll => "(polling)",
        ThreadState::Gil => "(waiting for the GIL)",
        ThreadState::Device => "(waiting for a device)",
    })
}
