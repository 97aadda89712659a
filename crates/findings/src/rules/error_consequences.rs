//! Finds what followed an error of the machine in a rank: a slow step, a failed call of CUDA, a hang,
//! or the end of a process. That one followed the other doesn't prove that it was caused by it.

use std::cmp::Reverse;
use std::collections::HashSet;

use serde_json::Value;
use tprof_facts::units::{count, counted, duration, signal};
use tprof_rank::base::intervals::Interval;
use tprof_rank::steps_of_one_process;
use tprof_trace::calls::function;
use tprof_trace::model::{ProcessEnd, property};

use super::device_errors::failures;
use crate::scene::Scene;

/// A step is slow from this multiple of the median on.
const SLOW: f64 = 1.5;
/// With fewer steps, no median is known.
const LEAST_STEPS: usize = 4;
/// A failure within this time after an error counts as its consequence. NCCL waits for a broken rank
/// much longer, but then a hang or another rank's end comes first.
const MOST_UNTIL_FAILURE_NS: u64 = 60_000_000_000;
/// A hang that began within this time after an error counts as its consequence.
const MOST_UNTIL_HANG_NS: u64 = 30_000_000_000;

/// A step, with its number and its time on the file's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedStep {
    pub number: u64,
    pub interval: Interval,
}

/// What happened in a rank that errors of the machine may have caused.
pub(super) struct Events {
    /// The steps after the first one, in order of time.
    pub steps: Vec<TimedStep>,
    /// The median time of these steps, ns; `None` if there are too few.
    pub usual_ns: Option<u64>,
    /// Ends of processes that failed, ns, in words.
    failed: Vec<(u64, String)>,
    /// Calls after which the device is of no more use, ns, in words.
    pub fatal_calls: Vec<(u64, String)>,
    /// Beginnings and ends of hangs, ns.
    hangs: Vec<Interval>,
}

/// What followed one error.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Consequences {
    /// Indexes of the slow steps.
    pub slow_steps: Vec<usize>,
    /// What failed or hung, in words.
    pub failures: Vec<String>,
}

impl Consequences {
    pub(super) fn is_empty(&self) -> bool {
        self.slow_steps.is_empty() && self.failures.is_empty()
    }

    /// Adds what followed another error of the same kind.
    pub(super) fn join(&mut self, other: Consequences) {
        self.slow_steps.extend(other.slow_steps);
        self.slow_steps.sort_unstable();
        self.slow_steps.dedup();
        for failure in other.failures {
            if !self.failures.contains(&failure) {
                self.failures.push(failure);
            }
        }
    }
}

impl Events {
    pub(super) fn of(scene: &Scene<'_>) -> Events {
        let steps = steps_of_one_process(scene.rank);
        let of_step =
            |step: &tprof_rank::Step| TimedStep { number: step.number, interval: step.time() };
        let steps: Vec<TimedStep> = steps.iter().skip(1).map(of_step).collect();
        let mut lengths: Vec<u64> = steps.iter().map(|step| step.interval.length()).collect();
        lengths.sort_unstable();
        let usual_ns = (lengths.len() >= LEAST_STEPS).then(|| lengths[lengths.len() / 2]);
        let fatal = failures(scene).0.into_iter().filter(|one| one.library.is_fatal(one.status));
        let fatal_calls = fatal.map(|one| {
            let name = function(scene.rank.name(one.call.name));
            (one.call.start_ns, format!("{name} returned: {}", one.library.words(one.status)))
        });
        Events {
            steps,
            usual_ns,
            failed: failed_processes(scene),
            fatal_calls: fatal_calls.collect(),
            hangs: hangs(scene),
        }
    }

    /// Whether a step took much longer than usual.
    pub(super) fn is_slow(&self, step: &TimedStep) -> bool {
        let limit_ns = self.usual_ns.map(|usual_ns| usual_ns as f64 * SLOW);
        limit_ns.is_some_and(|limit_ns| step.interval.length() as f64 > limit_ns)
    }

    /// Returns what followed an error at this time. A step counts if the error came in it, or at
    /// most a usual step before it.
    pub(super) fn after(&self, time_ns: u64) -> Consequences {
        let before_ns = self.usual_ns.unwrap_or(0);
        let is_hit = |step: &TimedStep| {
            let Interval { start, end } = step.interval;
            start.saturating_sub(before_ns) <= time_ns && time_ns <= end && self.is_slow(step)
        };
        let hit = self.steps.iter().enumerate().filter(|(_, step)| is_hit(step));
        let slow_steps = hit.map(|(at, _)| at).collect();
        let soon = |(at_ns, _): &&(u64, String)| {
            at_ns.checked_sub(time_ns).is_some_and(|after_ns| after_ns <= MOST_UNTIL_FAILURE_NS)
        };
        let later = |(at_ns, words): &(u64, String)| {
            format!("{words}, {} later", duration(at_ns - time_ns))
        };
        let mut failures: Vec<String> = self
            .hangs
            .iter()
            .filter_map(|hang| {
                let from_ns = hang.start.saturating_sub(MOST_UNTIL_HANG_NS);
                (from_ns..=hang.end).contains(&time_ns).then(|| "the job hung".to_owned())
            })
            .take(1)
            .collect();
        failures.extend(self.fatal_calls.iter().find(soon).map(later));
        failures.extend(self.failed.iter().find(soon).map(later));
        Consequences { slow_steps, failures }
    }

    /// Formats consequences in one or two sentences, with the slowest step; empty if there are none.
    pub(super) fn words(&self, found: &Consequences) -> String {
        let steps = found.slow_steps.iter().map(|at| &self.steps[*at]);
        let slowest = steps.min_by_key(|step| Reverse(step.interval.length()));
        let mut words: Vec<String> = Vec::new();
        if let (Some(step), Some(usual_ns)) = (slowest, self.usual_ns) {
            let more = match found.slow_steps.len() {
                1 => String::new(),
                all => {
                    let more = counted(all as u64 - 1, "more slow step", "more slow steps");
                    format!(", and {more}")
                }
            };
            words.push(format!(
                "step {} took {}, median {}{more}",
                count(step.number),
                duration(step.interval.length()),
                duration(usual_ns)
            ));
        }
        words.extend(found.failures.iter().cloned());
        match words.is_empty() {
            true => String::new(),
            false => format!(" What followed: {}.", words.join("; ")),
        }
    }

    /// Returns by how much steps were longer than usual, together, ns.
    pub(super) fn lost_ns(&self, steps: &[usize]) -> u64 {
        let usual_ns = self.usual_ns.unwrap_or(0);
        steps.iter().map(|at| self.steps[*at].interval.length().saturating_sub(usual_ns)).sum()
    }
}

/// Returns the failures of the processes that make a rank: those that no other process of the rank
/// started, that use a device, or that mark steps. Of others, such as a compiler that tests what it
/// can do, a failure may be part of the work.
fn failed_processes(scene: &Scene<'_>) -> Vec<(u64, String)> {
    let file = scene.rank.file;
    let pids: HashSet<u32> = file.processes().iter().map(|process| process.pid).collect();
    let steps = steps_of_one_process(scene.rank);
    let of_steps = steps.first().map(|step| step.process);
    let is_main = |process: &&tprof_trace::model::Process| {
        !pids.contains(&process.parent)
            || of_steps == Some(process.process)
            || file.devices().iter().any(|device| device.process == process.process)
    };
    let failed = file.processes().iter().filter(is_main).filter_map(|process| {
        let (time_ns, end) = file.process_end(process.process)?;
        let how = match end {
            ProcessEnd::Exited(status) if status != 0 => format!("ended with status {status}"),
            ProcessEnd::Signal(number) => format!("was ended by {}", signal(number)),
            _ => return None,
        };
        Some((time_ns, format!("process {} {how}", process.pid)))
    });
    let mut failed: Vec<(u64, String)> = failed.collect();
    failed.sort();
    failed
}

fn hangs(scene: &Scene<'_>) -> Vec<Interval> {
    let hangs = scene.rank.file.properties().filter_map(|(key, value)| {
        let time_ns: u64 = key.strip_prefix(property::HANG)?.parse().ok()?;
        let value: Value = serde_json::from_str(value).ok()?;
        let after_ns = value["after_ns"].as_u64().unwrap_or(0);
        Some(Interval::new(time_ns.saturating_sub(after_ns), time_ns))
    });
    hangs.collect()
}
