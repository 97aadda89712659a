//! Follows the steps of a rank: measures how long they take, and detects slow steps and stalls.

use std::collections::VecDeque;
use tprof_facts::Step;
use tprof_facts::steps::{LiveSteps, StepSource};
use tprof_trace::model::ProcessIndex;

/// Number of recent steps whose median is the usual step time.
const USUAL_OF: usize = 64;
/// Smallest number of steps from which a usual step time is computed.
const LEAST_STEPS: usize = 5;
/// A rank is stalled if its current step takes more than this many times the usual step time, and
/// also more than [`STALL_NS`].
const STALL_TIMES: u64 = 5;
/// Smallest duration of a stall.
const STALL_NS: u64 = 2_000_000_000;
/// A slow step takes more than this many times the usual step time.
const SLOW_TIMES: u64 = 3;
/// Period over which steps per second are computed.
const RATE_NS: u64 = 10_000_000_000;
/// Largest number of steps in the period of the rate.
const RATE_STEPS: usize = 4096;

/// Steps of one rank, on its host's clock.
#[derive(Debug, Default)]
pub struct StepPace {
    steps: LiveSteps,
    source: Option<StepSource>,
    /// Process whose steps count: the first one that ended a step. When it has ended, the next
    /// process that ends a step replaces it.
    driving: Option<ProcessIndex>,
    count: u64,
    ends: VecDeque<u64>,
    usual: VecDeque<u64>,
    last: Option<Step>,
}

/// A step that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowStep {
    /// The step that was slow.
    pub step: Step,
    /// Median of the steps before.
    pub usual_ns: u64,
}

/// A rank that has had no step for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StalledSteps {
    /// When its last step ended.
    pub since_ns: u64,
    /// Time since then.
    pub for_ns: u64,
    /// Median of the steps before.
    pub usual_ns: u64,
    /// Number of the step that has not ended.
    pub step: u64,
}

impl StepPace {
    /// Returns the collector of marks and ranges that define steps.
    pub fn steps(&mut self) -> &mut LiveSteps {
        &mut self.steps
    }

    /// Takes the steps that ended since the last call from the collector of steps. Returns those of
    /// the driving process, and which of them were slow.
    ///
    /// `runs` tells whether a process is running.
    pub fn settle(&mut self, runs: impl Fn(ProcessIndex) -> bool) -> (Vec<Step>, Vec<SlowStep>) {
        let new = self.steps.take();
        if self.steps.source() != self.source {
            // A better source of steps has appeared (marks instead of optimizer updates, for
            // example), so the steps counted so far are discarded.
            let steps = std::mem::take(&mut self.steps);
            *self = StepPace { source: steps.source(), steps, ..StepPace::default() };
        }
        let begins = |step: &&Step| self.driving.is_none_or(|of| of != step.process && !runs(of));
        if let Some(first) = new.iter().find(begins) {
            self.driving = Some(first.process);
        }
        let driving = self.driving;
        let own: Vec<Step> = new.into_iter().filter(|step| Some(step.process) == driving).collect();
        let slow = own.iter().filter_map(|step| self.add(*step)).collect();
        (own, slow)
    }

    fn add(&mut self, step: Step) -> Option<SlowStep> {
        let took_ns = step.end_ns.saturating_sub(step.start_ns);
        let usual_ns = self.usual_ns();
        self.count += 1;
        self.last = Some(step);
        self.ends.push_back(step.end_ns);
        self.usual.push_back(took_ns);
        if self.ends.len() > RATE_STEPS {
            self.ends.pop_front();
        }
        if self.usual.len() > USUAL_OF {
            self.usual.pop_front();
        }
        let usual_ns = usual_ns?;
        (took_ns > usual_ns.saturating_mul(SLOW_TIMES)).then_some(SlowStep { step, usual_ns })
    }

    /// Returns the median duration of the last steps; `None` if there are too few.
    pub fn usual_ns(&self) -> Option<u64> {
        let mut all: Vec<u64> = self.usual.iter().copied().collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().filter(|_| all.len() >= LEAST_STEPS)
    }

    /// Returns the number of steps that ended; `None` without a source of steps.
    pub fn count(&self) -> Option<u64> {
        self.source.map(|_| self.count)
    }

    /// Returns the last step.
    pub fn last(&self) -> Option<Step> {
        self.last
    }

    /// Returns the driving process: the one whose steps count.
    pub fn driving(&self) -> Option<ProcessIndex> {
        self.driving
    }

    /// Returns steps per second over the ten seconds before `now_ns`, or over three usual steps if
    /// these take longer.
    pub fn per_second(&mut self, now_ns: u64) -> Option<f64> {
        self.source?;
        let usual_ns = self.usual_ns().unwrap_or(0);
        let window_ns = RATE_NS.max(usual_ns.saturating_mul(3));
        let from_ns = now_ns.saturating_sub(window_ns);
        while self.ends.len() > LEAST_STEPS && self.ends.front().is_some_and(|end| *end < from_ns) {
            self.ends.pop_front();
        }
        let within = self.ends.iter().filter(|end| **end >= from_ns);
        let (count, first) = (within.clone().count(), within.min().copied());
        let covered_ns = match first {
            // `ends` has no step from before the window, because it has all steps of the run or is
            // full. So the rate covers only the time since the first step in the window.
            Some(first) if self.ends.len() as u64 == self.count || count == RATE_STEPS => {
                now_ns.saturating_sub(first).clamp(1, window_ns)
            }
            _ => window_ns,
        };
        let whole = if covered_ns < window_ns { count.saturating_sub(1) } else { count };
        Some(whole as f64 * 1e9 / covered_ns as f64)
    }

    /// Returns the stall at `now_ns`: for how long there has been no step. `None` if the rank is
    /// not stalled, or has had too few steps to judge.
    pub fn stalled(&self, now_ns: u64) -> Option<StalledSteps> {
        let (last, usual_ns) = (self.last?, self.usual_ns()?);
        let for_ns = now_ns.saturating_sub(last.end_ns);
        let limit_ns = usual_ns.saturating_mul(STALL_TIMES).max(STALL_NS);
        (for_ns > limit_ns).then_some(StalledSteps {
            since_ns: last.end_ns,
            for_ns,
            usual_ns,
            step: last.number.saturating_add(1),
        })
    }
}
