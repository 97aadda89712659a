//! Reads the totals that processes themselves count under `--mem sampled`.
//!
//! Calls and requested bytes are exact sums. Live and peak bytes are counted for each process, and
//! each thread may lag behind by a limited number of bytes. If processes ran at the same time,
//! their common peak is less exact, since their counters are read only from time to time.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_rank::base::reading::Reading;
use tprof_trace::TraceFile;
use tprof_trace::model::{HeapTotals, MemoryRecording, Process, ProcessIndex};

use super::gauges::{ProcessEnds, Sample, sweep};
use super::missing::gap;

/// A thread adds its bytes to its process's counters late, but at most this many bytes late.
pub const PEAK_SLACK_BYTES: u64 = 64 << 10;

/// The last row of each process.
type Last<'a> = FxHashMap<ProcessIndex, &'a HeapTotals>;

/// Totals of a rank.
pub(crate) struct Totals {
    pub allocations: Reading<u64>,
    pub frees: Reading<u64>,
    pub allocated_bytes: Reading<u64>,
    pub live_at_exit_bytes: Reading<u64>,
    pub peak_bytes: Reading<u64>,
    pub peak_at_ns: Option<u64>,
    /// Live bytes of each process over time.
    pub samples: Vec<Sample>,
}

/// Reads the totals of all processes that kept totals.
pub(crate) fn totals(file: &TraceFile, ends: &ProcessEnds) -> Totals {
    // Rows are in order of time, so that the last row of each process replaces the others.
    let last: Last = file.totals().iter().map(|row| (row.process, row)).collect();
    let sum = |part: &dyn Fn(&HeapTotals) -> Reading<u64>| {
        let mut sum = Reading::Is(0);
        for process in recorded(file) {
            let pid = process.pid;
            sum = sum.plus(match last.get(&process.process) {
                Some(row) => part(row),
                None => Reading::missing(format!("pid {pid} left no totals")),
            });
        }
        sum
    };
    let (peak_bytes, peak_at_ns) = peak(file, ends, &last);
    let live = |row: &HeapTotals| match row.live_bytes {
        Some(live) => Reading::Is(live),
        None => Reading::missing(gap(file)),
    };
    Totals {
        allocations: sum(&|row| Reading::Is(row.allocations)),
        frees: sum(&|row| Reading::Is(row.frees)),
        allocated_bytes: sum(&|row| Reading::Is(row.allocated_bytes)),
        live_at_exit_bytes: sum(&live),
        peak_bytes,
        peak_at_ns,
        samples: live_samples(file),
    }
}

fn live_samples(file: &TraceFile) -> Vec<Sample> {
    let sample = |row: &HeapTotals| Some((row.time_ns, row.process, row.live_bytes?));
    file.totals().iter().filter_map(sample).collect()
}

/// Returns the peak of the rank, and its time. The peak lies between the highest value that was
/// read at one time and the sum of the peaks of processes that lived at the same time.
fn peak(file: &TraceFile, ends: &ProcessEnds, last: &Last) -> (Reading<u64>, Option<u64>) {
    let mut lifetimes: Vec<Sample> = Vec::new();
    let (mut lower, mut at) = (0, None);
    for process in recorded(file) {
        let Some(row) = last.get(&process.process) else {
            return (Reading::missing(format!("pid {} left no totals", process.pid)), None);
        };
        let Some(peak) = row.peak_bytes else { return (Reading::missing(gap(file)), None) };
        lifetimes.push((process.start_ns, process.process, peak));
        if peak > lower {
            (lower, at) = (peak, row.peak_at_ns);
        }
    }
    let mut upper = 0;
    sweep(&mut lifetimes, ends, |_, sum| upper = upper.max(sum));
    sweep(&mut live_samples(file), ends, |time_ns, sum| {
        if sum > lower {
            (lower, at) = (sum, Some(time_ns));
        }
    });
    let slack = most_threads(file, ends).saturating_mul(PEAK_SLACK_BYTES);
    let error = upper.saturating_sub(lower).saturating_add(slack);
    (Reading::Estimate { value: lower, error }, at)
}

/// The largest number of threads that were alive at the same time.
fn most_threads(file: &TraceFile, ends: &ProcessEnds) -> u64 {
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for thread in file.threads() {
        changes.push((thread.start_ns, 1));
        let process_end = ends.get(&thread.process).copied();
        if let Some(end) = file.thread_end(thread.thread).or(process_end) {
            changes.push((end.saturating_add(1), -1));
        }
    }
    changes.sort_unstable();
    let (mut alive, mut most) = (0i64, 1i64);
    for (_, change) in changes {
        alive += change;
        most = most.max(alive);
    }
    most as u64
}

/// Processes with rows in which live bytes are unknown.
pub(crate) fn gaps(file: &TraceFile) -> FxHashSet<ProcessIndex> {
    let unknown = file.totals().iter().filter(|row| row.live_bytes.is_none());
    unknown.map(|row| row.process).collect()
}

fn recorded(file: &TraceFile) -> impl Iterator<Item = &Process> {
    file.processes().iter().filter(|process| process.memory != MemoryRecording::Off)
}
