//! What one thread did.

use rustc_hash::FxHashMap;
use tprof_trace::model::{ProcessIndex, ThreadCounts, ThreadState};

use super::counted::Counts;
use crate::rank::samples::Func;

/// Kinds of waits, in the order of their columns.
pub(super) const WAITS: [ThreadState; 7] = [
    ThreadState::Lock,
    ThreadState::Io,
    ThreadState::Sleep,
    ThreadState::Poll,
    ThreadState::Gil,
    ThreadState::Device,
    ThreadState::Blocked,
];

/// One thread.
#[derive(Debug, Default)]
pub struct ThreadRow {
    pub process: ProcessIndex,
    pub program: String,
    pub pid: u32,
    pub tid: u32,
    pub name: Option<String>,
    pub by_state: FxHashMap<ThreadState, u64>,
    /// Of waits, where a part was not sampled: see `Stretch::variance`.
    pub variance: FxHashMap<ThreadState, f64>,
    pub gil_ns: Option<u64>,
    pub samples: u64,
    pub counts: ThreadCounts,
    pub events: Counts,
    /// Where it ran most, and waited most.
    pub ran: FxHashMap<Func, u64>,
    pub waited: FxHashMap<(ThreadState, Func), u64>,
}

impl ThreadRow {
    pub fn time(&self, state: ThreadState) -> u64 {
        self.by_state.get(&state).copied().unwrap_or(0)
    }

    /// Whether it is one of a pool, or a server's, that had next to nothing to do: on a core, or
    /// ready for one, for less than 2 % of its life. A process's first thread never is.
    pub fn is_idle(&self) -> bool {
        let active_ns = self.time(ThreadState::Running) + self.time(ThreadState::Runnable);
        self.tid != self.pid && active_ns * 49 < self.waited_ns()
    }

    pub fn waited_ns(&self) -> u64 {
        WAITS.iter().map(|state| self.time(*state)).sum()
    }
}
