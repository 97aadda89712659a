//! Reads the metrics of a whole run from its ranks: their life, and their peaks of memory.

use tprof_metrics::memory::RankMemory;
use tprof_rank::RankTrace;
use tprof_rank::base::reading::Reading;
use tprof_trace::TraceFile;
use tprof_trace::model::Allocator;

use super::figures::Figure;

/// The highest memory of any rank, bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Peaks {
    heap: Option<Reading<u64>>,
    rss: Option<Reading<u64>>,
    device: Option<Reading<u64>>,
}

impl Peaks {
    /// Returns the peaks of one rank.
    pub fn of(rank: &RankTrace<'_>, memory: &RankMemory) -> Peaks {
        Peaks {
            heap: Some(memory.host_memory.peak_bytes.clone()),
            rss: Some(memory.timeline.rss_peak_bytes.clone()),
            device: Some(device_peak(rank)),
        }
    }

    /// Replaces each peak by that of `other` if it is higher.
    pub fn most(&mut self, other: Peaks) {
        fn most(a: &mut Option<Reading<u64>>, b: Option<Reading<u64>>) {
            let known = |reading: &Option<Reading<u64>>| reading.as_ref().and_then(Reading::get);
            if known(&b) > known(a) || a.is_none() {
                *a = b;
            }
        }
        most(&mut self.heap, other.heap);
        most(&mut self.rss, other.rss);
        most(&mut self.device, other.device);
    }

    /// Converts the peaks to figures of the run.
    pub fn figures(self) -> Vec<Figure> {
        let or_missing = |reading: Option<Reading<u64>>| {
            reading.unwrap_or_else(|| Reading::missing("no rank was recorded"))
        };
        vec![
            Figure { key: "peak_heap", value: or_missing(self.heap) },
            Figure { key: "peak_rss", value: or_missing(self.rss) },
            Figure { key: "peak_device_memory", value: or_missing(self.device) },
        ]
    }
}

/// Returns the time from the first process's start to the last process's end, ns. If a process has
/// no recorded end, the last event counts as its end.
pub(super) fn life_ns(file: &TraceFile) -> Option<u64> {
    let processes = file.processes();
    let first_ns = processes.iter().map(|process| process.start_ns).min()?;
    let ends: Option<Vec<u64>> =
        processes.iter().map(|process| Some(file.process_end(process.process)?.0)).collect();
    let last_ns = ends.and_then(|ends| ends.into_iter().max()).unwrap_or_else(|| file.last_ns());
    Some(last_ns.saturating_sub(first_ns))
}

/// Returns the highest total of the framework's allocator on any device.
fn device_peak(rank: &RankTrace<'_>) -> Reading<u64> {
    let rows = rank.allocations.iter().filter(|row| row.device.is_some());
    let framework = rows.filter(|row| row.allocator == Allocator::Framework);
    let mut rows = framework.peekable();
    let has_rows = rows.peek().is_some();
    match rows.filter_map(|row| row.total_allocated_bytes).max() {
        Some(bytes) => Reading::Is(bytes),
        None if has_rows => Reading::missing("the framework's allocator gives no totals"),
        None => Reading::missing("no allocator of a framework was recorded"),
    }
}
