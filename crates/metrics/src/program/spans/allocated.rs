//! Counts the allocations within spans and the bytes that they requested, or says why the numbers
//! aren't known.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_rank::base::reading::Reading;
use tprof_trace::TraceFile;
use tprof_trace::model::{HeapChange, MemoryRecording, ProcessIndex, ThreadIndex};

use super::find::OwnSpan;
use super::pauses::{PAUSED, Pauses};
use crate::memory::{OFF, lost};

const ANY_THREAD: &str = "the span may end in another thread";
const NOT_COUNTED: &str = "a span's end was not recorded, or an older tprof recorded it";
const UNREAD: &str = "a part of the file could not be read";

/// The number of allocations within a span, and the bytes that they requested.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Allocated {
    pub allocations: Reading<u64>,
    pub bytes: Reading<u64>,
}

impl Allocated {
    /// Returns the sum over zero spans.
    pub fn none() -> Allocated {
        Allocated::is(0, 0)
    }

    fn is(allocations: u64, bytes: u64) -> Allocated {
        Allocated { allocations: Reading::Is(allocations), bytes: Reading::Is(bytes) }
    }

    fn missing(why: &str) -> Allocated {
        Allocated { allocations: Reading::missing(why), bytes: Reading::missing(why) }
    }

    /// Returns the sum of the two.
    pub fn plus(self, other: Allocated) -> Allocated {
        let allocations = self.allocations.plus(other.allocations);
        Allocated { allocations, bytes: self.bytes.plus(other.bytes) }
    }
}

/// Returns the allocations of each span, including those of the spans within it.
pub(super) fn of_spans(file: &TraceFile, spans: &[OwnSpan]) -> Vec<Allocated> {
    let of: FxHashMap<ProcessIndex, MemoryRecording> =
        file.processes().iter().map(|process| (process.process, process.memory)).collect();
    let is_exact = |process| of.get(&process) == Some(&MemoryRecording::Exact);
    // A span has no counts if its process was killed before the span ended, or if an older version
    // of tprof recorded it.
    let is_uncounted = |span: &&OwnSpan| is_exact(span.row.process) && counted(span).is_none();
    let with_events: FxHashSet<ProcessIndex> =
        spans.iter().filter(is_uncounted).map(|span| span.row.process).collect();
    let (recorded, damaged) = match with_events.is_empty() {
        true => (Vec::new(), false),
        false => recorded(file, spans, &with_events),
    };
    let lost = lost(file).or(damaged.then(|| UNREAD.to_owned()));
    let pauses = Pauses::of(file);
    let one = |(at, span): (usize, &OwnSpan)| match of.get(&span.row.process) {
        None | Some(MemoryRecording::Off) => Allocated::missing(OFF),
        _ if span.any_thread => Allocated::missing(ANY_THREAD),
        _ if pauses.overlap(span) => Allocated::missing(PAUSED),
        Some(MemoryRecording::Exact) => {
            match (&lost, counted(span).or_else(|| recorded.get(at).copied())) {
                (None, Some((allocations, bytes))) => Allocated::is(allocations, bytes),
                (Some(why), _) => Allocated::missing(why),
                (None, None) => Allocated::missing(UNREAD),
            }
        }
        Some(MemoryRecording::Sampled { .. }) => match counted(span) {
            Some((allocations, bytes)) => Allocated::is(allocations, bytes),
            None => Allocated::missing(NOT_COUNTED),
        },
    };
    spans.iter().enumerate().map(one).collect()
}

/// Returns the counts that the file stores with the span.
fn counted(span: &OwnSpan) -> Option<(u64, u64)> {
    Some((span.row.allocations?, span.row.allocated_bytes?))
}

/// Finds the innermost span of each of a thread's heap events, in one sweep in order of time.
struct ThreadSweep {
    next: usize,
    end: usize,
    open: Vec<u32>,
}

/// Counts the recorded allocations of each span by their times, including those in inner spans.
/// Also returns whether some events couldn't be read.
fn recorded(
    file: &TraceFile,
    spans: &[OwnSpan],
    of: &FxHashSet<ProcessIndex>,
) -> (Vec<(u64, u64)>, bool) {
    let mut sums = vec![(0_u64, 0_u64); spans.len()];
    let mut threads = threads(spans, of);
    let mut events = file.heap_events();
    for event in events.by_ref() {
        let HeapChange::Alloc { size, .. } = event.what else { continue };
        let Some(thread) = threads.get_mut(&event.thread) else { continue };
        if let Some(at) = thread.innermost(spans, event.time_ns) {
            let sum = &mut sums[at as usize];
            *sum = (sum.0 + 1, sum.1.saturating_add(size));
        }
    }
    // Inner spans come after the spans around them, so the loop runs backwards and adds inner spans
    // to outer ones.
    for at in (0..spans.len()).rev() {
        if let Some(parent) = spans[at].parent {
            let (allocations, bytes) = sums[at];
            let sum = &mut sums[parent as usize];
            *sum = (sum.0 + allocations, sum.1.saturating_add(bytes));
        }
    }
    (sums, !events.problems().is_empty() || !file.problems().is_empty())
}

fn threads(spans: &[OwnSpan], of: &FxHashSet<ProcessIndex>) -> FxHashMap<ThreadIndex, ThreadSweep> {
    let mut threads = FxHashMap::default();
    let mut from = 0;
    for run in spans.chunk_by(|a, b| a.row.thread == b.row.thread) {
        let end = from + run.len();
        if of.contains(&run[0].row.process) {
            threads.insert(run[0].row.thread, ThreadSweep { next: from, end, open: Vec::new() });
        }
        from = end;
    }
    threads
}

impl ThreadSweep {
    /// Returns the innermost span around a moment. Calls must be in order of time. An allocation
    /// has a time after the beginning of its span and before its end.
    fn innermost(&mut self, spans: &[OwnSpan], time_ns: u64) -> Option<u32> {
        while self.next < self.end && spans[self.next].row.start_ns <= time_ns {
            if !spans[self.next].any_thread {
                self.open.push(self.next as u32);
            }
            self.next += 1;
        }
        while let Some(&last) = self.open.last()
            && spans[last as usize].end_ns() < time_ns
        {
            self.open.pop();
        }
        self.open.last().copied()
    }
}
