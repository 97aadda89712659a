//! Remembers the last signs of progress of a process, for `tprof where`: its steps, and its
//! operations between ranks.

use std::collections::VecDeque;

/// Number of recent steps whose median is the usual time of a step.
const USUAL_OF: usize = 32;
/// Least number of steps from which a usual time is computed.
const LEAST_STEPS: usize = 4;
/// Number of recent operations that are kept.
const RECENT: usize = 32;

/// What tells of a step, the most trusted last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepSource {
    /// The range of an optimizer's update, with the id of its name. A second optimizer makes no
    /// steps of its own.
    Optimizer(u32),
    /// torch.profiler's range of a step.
    Profiler,
    /// The program itself.
    Program,
}

impl StepSource {
    fn trust(self) -> u8 {
        match self {
            StepSource::Optimizer(_) => 0,
            StepSource::Profiler => 1,
            StepSource::Program => 2,
        }
    }
}

/// The steps that a process has made.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    source: Option<StepSource>,
    count: u64,
    last: Option<(u64, u64)>,
    took_ns: VecDeque<u64>,
}

impl Steps {
    /// Adds a step that ended or began at `time_ns`. Without a number it gets the next one.
    pub fn add(&mut self, source: StepSource, number: Option<u64>, time_ns: u64) {
        match self.source {
            Some(known) if known == source => {}
            Some(known) if known.trust() >= source.trust() => return,
            _ => *self = Steps { source: Some(source), ..Steps::default() },
        }
        if let Some((_, before_ns)) = self.last {
            self.took_ns.push_back(time_ns.saturating_sub(before_ns));
            if self.took_ns.len() > USUAL_OF {
                self.took_ns.pop_front();
            }
        }
        self.last = Some((number.unwrap_or(self.count), time_ns));
        self.count += 1;
    }

    /// Returns number and time of the last step.
    pub fn last(&self) -> Option<(u64, u64)> {
        self.last
    }

    /// Returns the number of steps so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether these are told by a source that is trusted more than that of `other`.
    pub fn is_better(&self, other: &Steps) -> bool {
        self.source.map(StepSource::trust) > other.source.map(StepSource::trust)
    }

    /// Returns the median time of a step; `None` with too few steps.
    pub fn usual_ns(&self) -> Option<u64> {
        let mut all: Vec<u64> = self.took_ns.iter().copied().collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().filter(|_| all.len() >= LEAST_STEPS)
    }
}

/// An operation between ranks, as its process recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnteredOperation {
    /// Its number in its group, from 0.
    pub number: u64,
    /// Name of the operation, such as `all_reduce`.
    pub name: String,
    /// Its bytes, if known.
    pub bytes: Option<u64>,
    /// Time when the process entered it, or, for those that are recorded at their end, when they
    /// ended, ns.
    pub time_ns: u64,
}

/// The operations of a process in one group.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    /// Number of operations so far. Sends and receives aren't counted, because ranks make different
    /// numbers of them.
    pub count: u64,
    /// The last of them.
    pub recent: VecDeque<EnteredOperation>,
}

impl Operations {
    /// Adds an operation. Those between only two ranks are left out.
    pub fn add(&mut self, name: &str, bytes: Option<u64>, time_ns: u64) {
        if is_between_two(name) {
            return;
        }
        let operation =
            EnteredOperation { number: self.count, name: name.to_owned(), bytes, time_ns };
        self.recent.push_back(operation);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        self.count += 1;
    }
}

/// Whether an operation with this name is between two ranks only.
pub fn is_between_two(name: &str) -> bool {
    const PARTS: [&str; 6] = ["send", "Send", "recv", "Recv", "signal", "Probe"];
    PARTS.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_from_the_most_trusted_source_that_was_seen() {
        let mut steps = Steps::default();
        for at in 1..=5 {
            steps.add(StepSource::Optimizer(7), None, at * 100);
            steps.add(StepSource::Optimizer(8), None, at * 100 + 50);
        }
        assert_eq!((steps.last(), steps.count(), steps.usual_ns()), (Some((4, 500)), 5, Some(100)));
        steps.add(StepSource::Program, Some(40), 600);
        steps.add(StepSource::Optimizer(7), None, 700);
        assert_eq!((steps.last(), steps.usual_ns()), (Some((40, 600)), None));
        assert!(steps.is_better(&Steps::default()) && !Steps::default().is_better(&steps));
    }

    #[test]
    fn only_operations_of_the_whole_group_are_counted() {
        let mut operations = Operations::default();
        for name in ["all_reduce", "send", "recv", "MPI_Sendrecv", "all_reduce"] {
            operations.add(name, Some(4), 9);
        }
        assert_eq!(operations.count, 2);
        assert_eq!(operations.recent.back().map(|last| last.number), Some(1));
    }
}
