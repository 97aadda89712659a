//! What the rank's other threads and processes did while the driving thread waited for them, or
//! for what they held.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, ThreadIndex, ThreadState};

use super::driver::Driver;
use super::line::Place;
use crate::rank::samples::{CpuTrace, Part, Stretch};

/// Time of other threads, over all of the recording.
#[derive(Clone, Debug, Default)]
pub struct Others {
    /// Other processes: on a core.
    pub workers_running_ns: u64,
    /// Ready, without a core.
    pub workers_ready_ns: u64,
    /// Their lines with most time on a core, most first.
    pub workers: Vec<(Place, u64)>,
    /// Their lines with most time in sleeps, files and sockets, most first.
    pub workers_waiting: Vec<(Place, u64)>,
    /// Other threads of the driving thread's process: on a core.
    pub threads_running_ns: u64,
    /// Of them, those that held Python's lock longest, by the line at which they did.
    pub gil_holders: Vec<(Place, u64)>,
}

impl Others {
    /// Of a rank.
    pub fn of(driver: &Driver, file: &TraceFile, trace: &CpuTrace) -> Others {
        let mut found = Others::default();
        let pids: FxHashMap<ProcessIndex, u32> =
            file.processes().iter().map(|row| (row.process, row.pid)).collect();
        // Others of a worker's threads serve it, and wait most of the time.
        let firsts = file.threads().iter().filter(|row| pids.get(&row.process) == Some(&row.tid));
        let firsts: FxHashSet<ThreadIndex> = firsts.map(|row| row.thread).collect();
        let mut workers: FxHashMap<Place, u64> = FxHashMap::default();
        let mut waiting: FxHashMap<Place, u64> = FxHashMap::default();
        let mut holders: FxHashMap<Place, u64> = FxHashMap::default();
        for stretch in &trace.stretches {
            let is_worker = stretch.process != driver.process;
            if !is_worker && stretch.thread == driver.thread {
                continue;
            }
            match (stretch.state, is_worker) {
                (ThreadState::Running, true) => {
                    found.workers_running_ns += stretch.weight_ns;
                    if let Some(place) = place(stretch, trace) {
                        *workers.entry(place).or_default() += stretch.weight_ns;
                    }
                }
                (ThreadState::Runnable, true) => found.workers_ready_ns += stretch.weight_ns,
                (ThreadState::Running, false) => {
                    found.threads_running_ns += stretch.weight_ns;
                    let held_ns = stretch.gil_ns.unwrap_or(0);
                    if let Some(place) = place(stretch, trace).filter(|_| held_ns > 0) {
                        *holders.entry(place).or_default() += held_ns;
                    }
                }
                (_, true) if firsts.contains(&stretch.thread) => {
                    let part = Part::of(stretch.state, &stretch.stack, &trace.names);
                    if let Some(place) =
                        place(stretch, trace).filter(|_| is_slow(part, stretch.state))
                    {
                        *waiting.entry(place).or_default() += stretch.weight_ns;
                    }
                }
                _ => {}
            }
        }
        found.workers = by_time(workers);
        found.workers_waiting = by_time(waiting);
        found.gil_holders = by_time(holders);
        found
    }
}

/// Waits that make what a worker does take longer; others, as at a condition, are for its next task.
fn is_slow(part: Part, state: ThreadState) -> bool {
    matches!(part, Part::FileIo | Part::Socket) || part == Part::Other && state != ThreadState::Lock
}

fn by_time(sums: FxHashMap<Place, u64>) -> Vec<(Place, u64)> {
    let mut all: Vec<(Place, u64)> = sums.into_iter().collect();
    all.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    all
}

/// Where a stretch is, apart from what it calls there; `None` without a line of Python or own
/// code.
fn place(stretch: &Stretch, trace: &CpuTrace) -> Option<Place> {
    let stack = trace.stack(stretch.process, stretch.id);
    let place = Place::of(Part::Unknown, stretch.state, stack, &trace.names);
    (!place.function.is_empty() && !place.file.is_empty()).then(|| Place {
        below: String::new(),
        library: String::new(),
        ..place
    })
}
