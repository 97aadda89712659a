//! Downsamples curves for a viewer. Time is divided into stretches, and only the highest point of
//! each stretch is written.

use std::collections::BTreeMap;
use std::io;

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::model::{Counter, HeapChange, MemoryRecording, NameId, ProcessIndex, counter};

use crate::OpenRank;
use crate::gpus::{Gpu, Gpus};

/// Maximum number of points of a curve over a run.
pub(crate) const POINTS: u64 = 4_000;
/// Minimum length of a stretch.
const LEAST_STRETCH_NS: u64 = 100_000;

/// Returns the length of a stretch, for a run that lasts `run_ns`.
pub(crate) fn stretch_ns(run_ns: u64) -> u64 {
    (run_ns / POINTS).max(LEAST_STRETCH_NS)
}

/// Selects the highest point of each stretch, and the last point of the curve.
pub(crate) struct Downsampler<V = u64> {
    stretch_ns: u64,
    /// End of the current stretch.
    until_ns: u64,
    /// Highest point of the current stretch.
    highest: Option<(u64, V)>,
    last: Option<(u64, V)>,
}

impl<V: Copy + PartialOrd> Downsampler<V> {
    pub fn new(stretch_ns: u64) -> Downsampler<V> {
        Downsampler { stretch_ns, until_ns: 0, highest: None, last: None }
    }

    /// Adds a point. If it begins a new stretch, returns the highest point of the previous one.
    /// Times must not decrease.
    pub fn point(&mut self, time_ns: u64, value: V) -> Option<(u64, V)> {
        let ready = if time_ns >= self.until_ns { self.highest.take() } else { None };
        match self.highest {
            Some((_, highest)) if highest >= value => {}
            Some(_) => self.highest = Some((time_ns, value)),
            None => {
                self.highest = Some((time_ns, value));
                self.until_ns = time_ns.saturating_add(self.stretch_ns);
            }
        }
        self.last = Some((time_ns, value));
        ready
    }

    /// Returns the points that remain at the end: the highest point of the last stretch, then the
    /// last point of the curve.
    pub fn rest(self) -> impl Iterator<Item = (u64, V)> {
        let last = self.last.filter(|last| Some(*last) != self.highest);
        self.highest.into_iter().chain(last)
    }
}

/// Downsamples the live heap bytes of each process of a file, and calls `point` with each selected
/// point. If all allocations of a process were recorded, the bytes are summed from its events.
/// Otherwise they come from the totals that the process wrote.
pub(crate) fn heap<E>(
    file: &TraceFile,
    stretch_ns: u64,
    mut point: impl FnMut(ProcessIndex, u64, u64) -> Result<(), E>,
) -> Result<(), E> {
    let exact: FxHashMap<ProcessIndex, bool> = (file.processes().iter())
        .map(|process| (process.process, process.memory == MemoryRecording::Exact))
        .collect();
    let mut live: FxHashMap<ProcessIndex, Live> = FxHashMap::default();
    for event in file.heap_events() {
        if !exact.get(&event.process).copied().unwrap_or(true) {
            continue;
        }
        let process = live.entry(event.process).or_insert_with(|| Live::new(stretch_ns));
        match event.what {
            HeapChange::Alloc { ordinal, size, .. } => {
                process.sizes.insert(ordinal, size);
                process.bytes = process.bytes.saturating_add(size);
            }
            HeapChange::Free { ordinal, .. } => {
                let size = ordinal.and_then(|ordinal| process.sizes.remove(&ordinal)).unwrap_or(0);
                process.bytes = process.bytes.saturating_sub(size);
            }
        }
        if let Some((time_ns, bytes)) = process.thin.point(event.time_ns, process.bytes) {
            point(event.process, time_ns, bytes)?;
        }
    }
    for row in file.totals() {
        let sampled = exact.get(&row.process) == Some(&false);
        if let (true, Some(bytes)) = (sampled, row.live_bytes) {
            let process = live.entry(row.process).or_insert_with(|| Live::new(stretch_ns));
            if let Some((time_ns, bytes)) = process.thin.point(row.time_ns, bytes) {
                point(row.process, time_ns, bytes)?;
            }
        }
    }
    let mut live: Vec<_> = live.into_iter().collect();
    live.sort_by_key(|(process, _)| *process);
    for (process, live) in live {
        for (time_ns, bytes) in live.thin.rest() {
            point(process, time_ns, bytes)?;
        }
    }
    Ok(())
}

/// A point of a curve.
#[derive(Clone, Copy)]
pub(crate) struct Point<'a> {
    pub process: Option<ProcessIndex>,
    pub gpu: Option<Gpu>,
    /// The quantity, as the file names it.
    pub name: &'a str,
    pub time_ns: u64,
    pub value: f64,
}

/// Calls `point` with the points of all curves of a file within the slice, and returns the number
/// of rows that they come from. The heap is always downsampled. Of other quantities, `thinned`
/// returns the curve with which a point is downsampled, or `None` if it is kept. The ends of the
/// downsampled curves come last, in order of the curves.
pub(crate) fn points<'a, K: Ord>(
    part: &'a OpenRank<'_>,
    thinned: impl Fn(&Point<'a>, NameId) -> Option<K>,
    mut point: impl FnMut(Point<'a>) -> io::Result<()>,
) -> io::Result<u64> {
    let (trace, window) = (&part.trace, part.window);
    let (first_ns, last_ns) = trace.extent_ns().unwrap_or_default();
    let stretch_ns = stretch_ns(last_ns.saturating_sub(first_ns));
    heap(trace, stretch_ns, |process, time_ns, bytes| {
        if !window.holds(time_ns) {
            return Ok(());
        }
        let (process, name) = (Some(process), counter::HEAP_BYTES);
        point(Point { process, gpu: None, name, time_ns, value: bytes as f64 })
    })?;
    let (mut rows, gpus) = (0, Gpus::of(trace));
    let mut curves: BTreeMap<K, (Downsampler, Point<'a>)> = BTreeMap::new();
    for row in trace.counters().iter().filter(|row| window.holds(row.time_ns)) {
        rows += 1;
        let Counter { time_ns, process, value, .. } = *row;
        let one = Point { process, gpu: gpus.gpu(row), name: trace.name(row.name), time_ns, value };
        if one.name == counter::HEAP_BYTES || !value.is_finite() {
            continue; // `heap` draws the heap, and no viewer can draw NaN or infinity.
        }
        let Some(curve) = thinned(&one, row.name).filter(|_| value >= 0.0) else {
            point(one)?;
            continue;
        };
        let (thin, _) = curves.entry(curve).or_insert_with(|| (Downsampler::new(stretch_ns), one));
        if let Some((time_ns, bytes)) = thin.point(time_ns, value as u64) {
            point(Point { time_ns, value: bytes as f64, ..one })?;
        }
    }
    for (thin, one) in curves.into_values() {
        for (time_ns, bytes) in thin.rest() {
            point(Point { time_ns, value: bytes as f64, ..one })?;
        }
    }
    Ok(rows)
}

/// Live bytes of one process.
struct Live {
    sizes: FxHashMap<u64, u64>,
    bytes: u64,
    thin: Downsampler,
}

impl Live {
    fn new(stretch_ns: u64) -> Live {
        Live { sizes: FxHashMap::default(), bytes: 0, thin: Downsampler::new(stretch_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maxima_and_the_last_point_are_kept() {
        let mut thin = Downsampler::new(10);
        let mut kept = Vec::new();
        for (time, value) in [(0, 1), (3, 9), (9, 2), (10, 4), (12, 3), (35, 0)] {
            kept.extend(thin.point(time, value));
        }
        kept.extend(thin.rest());
        assert_eq!(kept, [(3, 9), (10, 4), (35, 0)]);
        let mut thin = Downsampler::new(10);
        assert_eq!(thin.point(0, 5), None);
        assert_eq!(thin.point(1, 2), None);
        assert_eq!(thin.rest().collect::<Vec<_>>(), [(0, 5), (1, 2)]);
    }
}
