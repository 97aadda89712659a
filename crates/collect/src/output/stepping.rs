//! Records which processes run PyTorch's operators, and which of them have made a step.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tprof_wire::pytorch::{OPTIMIZER_STEP, PROFILER_STEP};

/// Prefixes of the names of the ranges that PyTorch opens around a step.
const STEPS: [&str; 2] = [OPTIMIZER_STEP, PROFILER_STEP];

/// Whether a range with this name is a training step.
pub fn is_step(name: &str) -> bool {
    STEPS.iter().any(|step| name.starts_with(step))
}

/// The progress of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Time when the collector read the process's first operator or range.
    pub began: Instant,
    /// Whether the process has ended a step.
    pub has_stepped: bool,
}

/// The progress of each process, by pid. The engine writes it, and other threads read it.
#[derive(Debug, Default)]
pub struct Stepping(Mutex<HashMap<u32, Progress>>);

impl Stepping {
    /// Notes that a process runs operators, and whether it has ended a step.
    pub fn note(&self, pid: u32, has_stepped: bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = || Progress { began: Instant::now(), has_stepped: false };
        all.entry(pid).or_insert_with(unknown).has_stepped |= has_stepped;
    }

    /// Returns the progress of a process; `None` if none of its operators was read yet.
    pub fn of(&self, pid: u32) -> Option<Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&pid).copied()
    }

    /// Whether any process runs operators.
    pub fn is_any(&self) -> bool {
        !self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_stepped_stays_so() {
        let stepping = Stepping::default();
        assert!(!stepping.is_any());
        assert_eq!(stepping.of(7), None);
        stepping.note(7, false);
        let first = stepping.of(7).unwrap();
        assert!(!first.has_stepped);
        stepping.note(7, true);
        stepping.note(7, false);
        assert_eq!(stepping.of(7), Some(Progress { has_stepped: true, ..first }));
        assert_eq!((stepping.of(8), stepping.is_any()), (None, true));
    }

    #[test]
    fn steps_are_ranges_of_an_optimizer_or_of_the_profiler() {
        assert!(is_step("Optimizer.step#AdamW.step") && is_step("ProfilerStep#4"));
        assert!(!is_step("Optimizer.zero_grad#AdamW.zero_grad") && !is_step("step"));
    }
}
