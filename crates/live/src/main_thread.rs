//! Describes what each rank's main thread did recently. A wait is recorded only when it ends, so
//! the file has no record of the current wait.

use std::collections::{BTreeMap, VecDeque};

use tprof_facts::units::duration;
use tprof_trace::model::{ProcessIndex, SampleMoment, Thread, ThreadIndex, ThreadState};

/// Number of rows to keep per thread.
const MOST_ROWS: usize = 1024;
/// Largest number of processes of a file whose main thread is tracked.
const MOST_PROCESSES: usize = 256;
/// Samples may reach the file this late. Only a longer time without samples means that the thread
/// waits.
const LATE_NS: u64 = 5_000_000_000;

/// Recent rows of main threads.
#[derive(Debug, Default)]
pub struct MainThreadActivity {
    main: BTreeMap<ProcessIndex, ThreadIndex>,
    recent: BTreeMap<ThreadIndex, VecDeque<SampleMoment>>,
}

impl MainThreadActivity {
    /// Adds a thread. `pid` is the pid of its process, if the process is running. The main thread
    /// is the thread whose tid is `pid`. If tids are from another pid namespace, no tid matches,
    /// and the first thread of the process counts.
    pub fn thread(&mut self, row: &Thread, pid: Option<u32>) {
        let is_main = pid == Some(row.tid) || !self.main.contains_key(&row.process);
        if is_main && (self.main.len() < MOST_PROCESSES || self.main.contains_key(&row.process)) {
            self.main.insert(row.process, row.thread);
        }
    }

    /// Forgets a process that has ended.
    pub fn process_ended(&mut self, process: ProcessIndex) {
        if let Some(thread) = self.main.remove(&process) {
            self.recent.remove(&thread);
        }
    }

    /// Adds samples of threads; only those of main threads are stored.
    pub fn samples(&mut self, rows: &[SampleMoment]) {
        let mains: Vec<ThreadIndex> = self.main.values().copied().collect();
        for row in rows.iter().filter(|row| mains.contains(&row.thread)) {
            let recent = self.recent.entry(row.thread).or_default();
            recent.push_back(*row);
            if recent.len() > MOST_ROWS {
                recent.pop_front();
            }
        }
    }

    /// Describes what the main thread of a process did between two moments; `None` if its samples
    /// don't show it.
    pub fn describe(&self, process: ProcessIndex, from_ns: u64, until_ns: u64) -> Option<String> {
        let recent = self.recent.get(self.main.get(&process)?)?;
        let within = |row: &SampleMoment| {
            let end_ns = row.time_ns.saturating_add(row.weight_ns);
            end_ns.min(until_ns).saturating_sub(row.time_ns.max(from_ns))
        };
        let (mut by_state, mut last_ns) = (BTreeMap::<ThreadState, u64>::new(), from_ns);
        for row in recent {
            let ns = by_state.entry(row.state).or_default();
            *ns = ns.saturating_add(within(row));
            last_ns = last_ns.max(row.time_ns.saturating_add(row.weight_ns));
        }
        let silent_ns = until_ns.saturating_sub(last_ns);
        if silent_ns > LATE_NS {
            // The thread was sampled before. If it ran, there would still be samples, so it waits.
            let of = "no CPU sample and no end of a wait of its main thread";
            return Some(format!("{of} for {}", duration(silent_ns)));
        }
        let (state, ns) = by_state.into_iter().max_by_key(|(_, ns)| *ns)?;
        let is_much = ns >= until_ns.saturating_sub(from_ns) / 10;
        let text = || format!("its main thread {} for {} of it", state_phrase(state), duration(ns));
        (is_much && ns > 0).then(text)
    }
}

fn state_phrase(state: ThreadState) -> &'static str {
    match state {
        ThreadState::Running => "was on a core",
        ThreadState::Runnable => "waited for a core",
        ThreadState::Blocked => "was off its core",
        ThreadState::Lock => "waited for a lock or condition",
        ThreadState::Io => "waited for a file, a pipe or the network",
        ThreadState::Sleep => "slept",
        ThreadState::Poll => "waited for one of several events",
        ThreadState::Gil => "waited for Python's lock",
        ThreadState::Device => "waited for a device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_state_of_the_main_thread_is_described() {
        let mut activity = MainThreadActivity::default();
        let thread = |thread, tid| Thread { thread, process: 0, tid, start_ns: 0 };
        activity.thread(&thread(3, 8), Some(7));
        activity.thread(&thread(4, 7), Some(7));
        activity.thread(&thread(5, 9), Some(7));
        let second = 1_000_000_000;
        let row = |thread, at: u64, weight_ns, state| SampleMoment {
            time_ns: at * second,
            thread,
            weight_ns,
            state,
            ..SampleMoment::default()
        };
        assert_eq!(activity.describe(0, 0, 9 * second), None, "nothing was ever recorded of it");
        activity.samples(&[
            row(4, 1, second / 2, ThreadState::Running),
            row(4, 2, second, ThreadState::Lock),
            row(5, 2, 5 * second, ThreadState::Io),
        ]);
        let of = |from, until| activity.describe(0, from * second, until * second);
        let some = |text: &str| Some(format!("its main thread {text} of it"));
        assert_eq!(of(0, 4), some("waited for a lock or condition for 1.00 s"));
        assert_eq!(of(0, 2), some("was on a core for 500.0 ms"));
        assert_eq!(of(4, 6), None);
        assert!(of(4, 10).unwrap().ends_with("of its main thread for 6.00 s"));
        assert!(of(2, 10).unwrap().ends_with("of its main thread for 7.00 s"));
        assert_eq!(of(1, 7), some("waited for a lock or condition for 1.00 s"));
        activity.process_ended(0);
        assert_eq!(activity.describe(0, 0, 9 * second), None);
    }
}
