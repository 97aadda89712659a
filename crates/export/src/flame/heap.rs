//! Adds host allocations to trees, by stack: bytes, calls, and bytes that were live at the peak.

use rustc_hash::FxHashMap;
use tprof_trace::model::{HeapChange, MemoryRecording, ProcessIndex, StackId, ThreadIndex};

use super::labels::Labels;
use super::profile::{Measure, Profile};
use super::tree::FrameTable;
use crate::stacks::represented_allocations;
use crate::{OpenRank, Written};

pub(crate) const MEASURES: [Measure; 3] = [
    Measure { label: "Allocated", unit: "bytes", about: "requested bytes, freed or not" },
    Measure { label: "Allocations", unit: "count", about: "calls; a realloc is one" },
    Measure {
        label: "Live at peak",
        unit: "bytes",
        about: "requested bytes live at their process's peak",
    },
];

type HeapKey = (ProcessIndex, ThreadIndex, StackId);

/// Adds the allocations of a file.
pub(crate) fn collect(
    part: &OpenRank<'_>,
    written: &mut Written,
    labels: &mut Labels<'_>,
    table: &mut FrameTable,
    profile: &mut Profile,
) {
    let file = &part.trace;
    let intervals: FxHashMap<ProcessIndex, u64> = (file.processes().iter())
        .filter_map(|process| match process.memory {
            MemoryRecording::Sampled { interval } => Some((process.process, interval)),
            MemoryRecording::Exact | MemoryRecording::Off => None,
        })
        .collect();
    let weight = |process: ProcessIndex, size: u64| {
        represented_allocations(size, intervals.get(&process).copied())
    };
    let mut sums: FxHashMap<HeapKey, [f64; 3]> = FxHashMap::default();
    let mut heaps: FxHashMap<ProcessIndex, Heap> = FxHashMap::default();
    for event in file.heap_events().filter(|event| part.window.holds(event.time_ns)) {
        written.events += 1;
        let heap = heaps.entry(event.process).or_default();
        heap.events += 1;
        match event.what {
            HeapChange::Alloc { ordinal, size, stack, .. } => {
                let count = weight(event.process, size);
                let bytes = count * size as f64;
                let sum = sums.entry((event.process, event.thread, stack)).or_default();
                sum[0] += bytes;
                sum[1] += count;
                heap.take(ordinal, bytes);
            }
            HeapChange::Free { ordinal, .. } => heap.give(ordinal),
        }
    }
    profile.estimate |= !sums.is_empty() && !intervals.is_empty();
    written.left_out += file.heap_event_count().saturating_sub(heap_events(&heaps));
    live_at_peak(part, &heaps, weight, &mut sums);
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_unstable_by_key(|(key, _)| *key);
    for ((process, thread, stack), values) in sums {
        let above = labels.above(process, Some(thread), table).to_vec();
        let node = profile.node(&above, labels.stack(process, stack, table));
        for (measure, value) in values.into_iter().enumerate() {
            profile.add(node, measure, value);
        }
    }
}

fn heap_events(heaps: &FxHashMap<ProcessIndex, Heap>) -> u64 {
    heaps.values().map(|heap| heap.events as u64).sum()
}

/// Adds the blocks that were live at each process's peak. For this, the events up to the peak are
/// read a second time.
fn live_at_peak(
    part: &OpenRank<'_>,
    heaps: &FxHashMap<ProcessIndex, Heap>,
    weight: impl Fn(ProcessIndex, u64) -> f64,
    sums: &mut FxHashMap<HeapKey, [f64; 3]>,
) {
    for (&process, heap) in heaps {
        let mut live: FxHashMap<u64, (HeapKey, f64)> = FxHashMap::default();
        let events = part.trace.heap_events_of(process);
        let events = events.filter(|event| part.window.holds(event.time_ns));
        for event in events.take(heap.peak_at) {
            match event.what {
                HeapChange::Alloc { ordinal, size, stack, .. } => {
                    let bytes = weight(process, size) * size as f64;
                    live.insert(ordinal, ((process, event.thread, stack), bytes));
                }
                HeapChange::Free { ordinal, .. } => {
                    ordinal.map(|ordinal| live.remove(&ordinal));
                }
            }
        }
        for (key, bytes) in live.into_values() {
            sums.entry(key).or_default()[2] += bytes;
        }
    }
}

/// Live bytes of one process, which are tracked to find their peak.
#[derive(Default)]
struct Heap {
    sizes: FxHashMap<u64, f64>,
    live: f64,
    peak: f64,
    events: usize,
    /// Number of events before the peak.
    peak_at: usize,
}

impl Heap {
    fn take(&mut self, ordinal: u64, bytes: f64) {
        self.sizes.insert(ordinal, bytes);
        self.live += bytes;
        if self.live > self.peak {
            (self.peak, self.peak_at) = (self.live, self.events);
        }
    }

    fn give(&mut self, ordinal: Option<u64>) {
        self.live -= ordinal.and_then(|ordinal| self.sizes.remove(&ordinal)).unwrap_or(0.0);
    }
}
