//! What the rank's other threads and processes did while the driving thread waited for them, or
//! for what they held.

use rustc_hash::FxHashMap;
use tprof_trace::model::ThreadState;

use super::driver::Driver;
use crate::rank::samples::{CpuTrace, Func, Layer, Stretch};

/// Time of other threads, over all of the recording.
#[derive(Clone, Debug, Default)]
pub struct Others {
    /// Other processes: on a core.
    pub workers_running_ns: u64,
    /// Ready, without a core.
    pub workers_ready_ns: u64,
    /// Their functions with most time on a core, most first.
    pub workers: Vec<(String, u64)>,
    /// Other threads of the driving thread's process: on a core.
    pub threads_running_ns: u64,
    /// Of them, those that held Python's lock longest, by the function in which they did.
    pub gil_holders: Vec<(String, u64)>,
}

impl Others {
    /// Of a rank.
    pub fn of(driver: &Driver, trace: &CpuTrace) -> Others {
        let mut found = Others::default();
        let mut workers: FxHashMap<String, u64> = FxHashMap::default();
        let mut holders: FxHashMap<String, u64> = FxHashMap::default();
        for stretch in &trace.stretches {
            let is_worker = stretch.process != driver.process;
            if !is_worker && stretch.thread == driver.thread {
                continue;
            }
            match (stretch.state, is_worker) {
                (ThreadState::Running, true) => {
                    found.workers_running_ns += stretch.weight_ns;
                    if let Some(function) = own(stretch, trace) {
                        *workers.entry(function).or_default() += stretch.weight_ns;
                    }
                }
                (ThreadState::Runnable, true) => found.workers_ready_ns += stretch.weight_ns,
                (ThreadState::Running, false) => {
                    found.threads_running_ns += stretch.weight_ns;
                    let held_ns = stretch.gil_ns.unwrap_or(0);
                    if let Some(function) = own(stretch, trace).filter(|_| held_ns > 0) {
                        *holders.entry(function).or_default() += held_ns;
                    }
                }
                _ => {}
            }
        }
        found.workers = by_time(workers);
        found.gil_holders = by_time(holders);
        found
    }
}

fn by_time(sums: FxHashMap<String, u64>) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = sums.into_iter().collect();
    all.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    all
}

/// The innermost function of the user's own; else of Python.
fn own(stretch: &Stretch, trace: &CpuTrace) -> Option<String> {
    let functions = || stretch.stack.iter().map(|id| trace.names.get(*id));
    let python = |func: &&Func| func.layer == Layer::Python && !func.is_import();
    let found = functions().filter(python).find(|func| func.is_own());
    found.or_else(|| functions().find(python)).map(|func| func.name.to_string())
}
