//! Downsamples curves for a viewer. Time is divided into stretches, and only the highest point of
//! each stretch is written.

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::model::{HeapChange, MemoryRecording, ProcessIndex};

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
