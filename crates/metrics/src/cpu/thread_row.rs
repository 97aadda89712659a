//! Sums the time of one thread by what the thread did.

use rustc_hash::FxHashMap;
use tprof_rank::samples::{Func, FunctionTable, Stretch, wants_held_lock};
use tprof_trace::model::{ProcessIndex, ThreadCounts, ThreadState};

use super::counted::Counts;

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

/// Time of one thread, by what it did.
#[derive(Debug, Default)]
pub struct ThreadRow {
    pub process: ProcessIndex,
    pub program: String,
    pub pid: u32,
    pub tid: u32,
    pub name: Option<String>,
    pub by_state: FxHashMap<ThreadState, u64>,
    /// The part of the waits that was for locks which other threads held, ns.
    pub contended_ns: u64,
    /// Variance of the waits of which a part was not sampled: see `Stretch::shared`.
    pub variance: FxHashMap<ThreadState, f64>,
    pub gil_ns: Option<u64>,
    pub samples: u64,
    pub counts: ThreadCounts,
    pub events: Counts,
    /// Time on a core by function.
    pub ran: FxHashMap<Func, u64>,
    pub waited: FxHashMap<(ThreadState, Func), u64>,
}

impl ThreadRow {
    pub fn time(&self, state: ThreadState) -> u64 {
        self.by_state.get(&state).copied().unwrap_or(0)
    }

    /// Whether the thread had next to nothing to do, as threads of a pool or a server do: it was on
    /// a core, ready for one, or blocked by a lock that another thread held, for less than 2 % of
    /// its life. The first thread of a process is never idle.
    pub fn is_idle(&self) -> bool {
        let active_ns = self.time(ThreadState::Running) + self.time(ThreadState::Runnable);
        let waited_ns = self.waited_ns().saturating_sub(self.contended_ns);
        self.tid != self.pid && (active_ns + self.contended_ns) * 49 < waited_ns
    }

    /// Adds a stretch's time.
    pub fn add(&mut self, stretch: &Stretch, names: &FunctionTable) {
        *self.by_state.entry(stretch.state).or_default() += stretch.weight_ns;
        *self.variance.entry(stretch.state).or_default() += stretch.shared.variance();
        let frames = stretch.stack.iter().map(|id| names.get(*id));
        if wants_held_lock(stretch.state, frames) {
            self.contended_ns += stretch.weight_ns;
        }
    }

    pub fn waited_ns(&self) -> u64 {
        WAITS.iter().map(|state| self.time(*state)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_a_held_lock_is_not_idle() {
        let times = [(ThreadState::Running, 1), (ThreadState::Lock, 99)];
        let mut row = ThreadRow {
            pid: 1,
            tid: 2,
            by_state: times.into_iter().collect(),
            ..ThreadRow::default()
        };
        assert!(row.is_idle());
        row.contended_ns = 90;
        assert!(!row.is_idle());
        row.by_state.insert(ThreadState::Sleep, 10_000);
        assert!(row.is_idle());
    }
}
