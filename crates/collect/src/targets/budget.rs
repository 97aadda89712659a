//! Decides which parts of a process's recording are thinned, so that recording costs at most the
//! share of the process's CPU time that `--budget` allows.
//!
//! The collector knows how much work recording was in the last second, and what such work costs on
//! this machine. The costs are those of `overhead` in the reports. If the sum is above the budget on
//! average over [`INTERVALS`] and in the last of them, one part is thinned: the first in the order
//! of [`ORDER`] that is worth it. Nothing is recorded again later, so no part flaps. Counting
//! allocations isn't thinned, because live bytes would be unknown from then on.

use super::target::Target;
use crate::output::destination::Output;
use crate::targets::ending::RecordedWork;
use std::sync::atomic::Ordering::Relaxed;
use tprof_facts::thinned::{ThinnedPart, Thinning};
use tprof_trace::model::{Mark, MarkKind};
use tprof_wire::region::thinned;

/// Number of intervals over which the cost is averaged.
const INTERVALS: usize = 3;
/// A part is thinned only if it costs at least this share of the budget. Otherwise thinning it
/// would lose rows and gain nothing.
pub const WORTH: f64 = 0.1;
/// The parts that are thinned, in order.
const ORDER: [ThinnedPart; 3] =
    [ThinnedPart::OperatorsOfAllSteps, ThinnedPart::Operators, ThinnedPart::Stacks];

/// The cost of recording a process, or all of the job, in an interval, ns of CPU time.
#[derive(Clone, Copy, Debug, Default)]
pub struct IntervalCost {
    /// Time that recording operators took.
    pub operators: u64,
    /// Time that taking stacks of allocations and mappings took.
    pub stacks: u64,
    /// Time that samples of its threads and records of their context switches took.
    pub samples: u64,
    /// Time that everything else took: counted and recorded allocations, calls, ranges.
    pub rest: u64,
    /// CPU time in the interval.
    pub cpu: u64,
}

impl IntervalCost {
    fn sum(&self) -> u64 {
        [self.operators, self.stacks, self.samples, self.rest]
            .iter()
            .fold(0, |sum, part| sum.saturating_add(*part))
    }

    /// Returns the costs as shares of the CPU time.
    fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.cpu.max(1) as f64
    }

    /// Adds the costs of another interval or process.
    pub fn add(&mut self, other: &IntervalCost) {
        for (to, from) in [
            (&mut self.operators, other.operators),
            (&mut self.stacks, other.stacks),
            (&mut self.samples, other.samples),
            (&mut self.rest, other.rest),
            (&mut self.cpu, other.cpu),
        ] {
            *to = to.saturating_add(from);
        }
    }
}

/// The costs of the last intervals.
#[derive(Debug, Default)]
pub struct CostWindow(Vec<IntervalCost>);

impl CostWindow {
    /// Adds an interval. Returns the costs of the last `count` intervals if both these and the last
    /// interval are above the budget, which is a share.
    pub fn exceeds(
        &mut self,
        cost: IntervalCost,
        count: usize,
        budget: f64,
    ) -> Option<IntervalCost> {
        self.0.push(cost);
        let first = self.0.len().saturating_sub(count);
        self.0.drain(..first);
        let mut all = IntervalCost::default();
        self.0.iter().for_each(|one| all.add(one));
        let is_above = |of: &IntervalCost| of.share(of.sum()) > budget;
        (self.0.len() == count && is_above(&all) && is_above(&cost)).then_some(all)
    }

    /// Forgets the intervals, which don't show what recording costs from now on.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// How a process keeps to the budget.
#[derive(Debug, Default)]
pub struct ProcessBudget {
    /// The work of recording at the end of the last interval; `None` before the first.
    before: Option<RecordedWork>,
    window: CostWindow,
    /// What is thinned so far, as bits of [`thinned`].
    bits: u32,
    /// Whether it was said that nothing is left to thin.
    is_exhausted: bool,
}

impl ProcessBudget {
    /// Ends an interval with this work of recording. Returns the work in it; `None` for the first
    /// interval, and as long as the process has used less CPU time than `least_cpu_ns` in it.
    pub fn interval(&mut self, now: RecordedWork, least_cpu_ns: u64) -> Option<RecordedWork> {
        let Some(before) = self.before else {
            self.before = Some(now);
            return None;
        };
        let work = now.since(&before);
        if work.cpu_ns < least_cpu_ns {
            return None;
        }
        self.before = Some(now);
        Some(work)
    }

    /// Forgets the interval, because recording was off in it.
    pub fn forget_interval(&mut self) {
        self.before = None;
        self.window.clear();
    }

    /// Judges the cost of an interval. Returns the part to thin, and what it cost, as a share;
    /// [`ThinnedPart::Rest`] once if nothing is left to thin. `limits_steps` says whether operators
    /// can be limited to some steps: under `auto` they already are.
    pub fn judge(
        &mut self,
        cost: IntervalCost,
        budget: f64,
        limits_steps: bool,
    ) -> Option<(ThinnedPart, f64)> {
        let all = self.window.exceeds(cost, INTERVALS, budget)?;
        let of = |part| match part {
            ThinnedPart::OperatorsOfAllSteps if !limits_steps => 0,
            ThinnedPart::OperatorsOfAllSteps | ThinnedPart::Operators => all.operators,
            ThinnedPart::Stacks => all.stacks,
            ThinnedPart::Samples | ThinnedPart::Rest => 0,
        };
        let next = ORDER
            .into_iter()
            .find(|part| self.bits & bit(*part) == 0 && all.share(of(*part)) >= budget * WORTH);
        if let Some(part) = next {
            self.window.clear();
            self.bits |= bit(part);
            return Some((part, all.share(of(part))));
        }
        // The samples of the whole job may still be thinned, so they don't count as what is left.
        let left = all.share(all.sum() - all.samples);
        (left > budget && !std::mem::replace(&mut self.is_exhausted, true))
            .then_some((ThinnedPart::Rest, left))
    }
}

/// Returns the bit of a part in [`thinned`]; 0 for parts that no process thins itself.
fn bit(part: ThinnedPart) -> u32 {
    match part {
        ThinnedPart::OperatorsOfAllSteps => thinned::OPERATORS_OF_ALL_STEPS,
        ThinnedPart::Operators => thinned::OPERATORS,
        ThinnedPart::Stacks => thinned::STACKS,
        ThinnedPart::Samples | ThinnedPart::Rest => 0,
    }
}

impl Target {
    /// Tells the process what it records less of. The hooks' region may be another one than before,
    /// if the agent attached first.
    pub fn apply_thinning(&self) {
        self.hooks.region.header().thinned.fetch_or(self.budget.bits, Relaxed);
    }

    /// Writes a change into the process's file: as a mark, and as a property that stays when only
    /// the last part is kept.
    pub fn write_thinning(&mut self, thinning: &Thinning, out: &mut Output) {
        let Some(open) = out.files.open.get_mut(self.file) else { return };
        let name = open.writer.name(&thinning.mark());
        let (time_ns, process, kind) = (thinning.time_ns, thinning.process, MarkKind::Mark);
        open.writer.mark(Mark { time_ns, process, name, kind });
        open.write_property(&thinning.key(), &thinning.to_json());
        self.operators.thin(thinning, self.hooks.index, open);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: f64 = 0.01;

    /// An interval of a second of CPU time, in which the parts cost this many hundredths.
    fn second(operators: u64, stacks: u64, rest: u64) -> IntervalCost {
        let [operators, stacks, rest] = [operators, stacks, rest].map(|part| part * 10_000_000);
        IntervalCost { operators, stacks, rest, samples: 0, cpu: 1_000_000_000 }
    }

    /// Judges the same interval again and again, with what is thinned left out of it.
    fn thinned_by(cost: IntervalCost, limits_steps: bool, seconds: usize) -> Vec<ThinnedPart> {
        let mut budget = ProcessBudget::default();
        let judge = |_| {
            let without = |part, ns| if budget.bits & bit(part) != 0 { 0 } else { ns };
            let now = IntervalCost {
                operators: without(ThinnedPart::Operators, cost.operators),
                stacks: without(ThinnedPart::Stacks, cost.stacks),
                ..cost
            };
            budget.judge(now, BUDGET, limits_steps).map(|(part, _)| part)
        };
        (0..seconds).filter_map(judge).collect()
    }

    #[test]
    fn operators_go_before_stacks_and_both_only_while_the_sum_is_above_the_budget() {
        use ThinnedPart::*;
        assert_eq!(thinned_by(second(3, 3, 0), false, 30), [Operators, Stacks]);
        assert_eq!(thinned_by(second(3, 3, 0), true, 30), [OperatorsOfAllSteps, Operators, Stacks]);
        assert_eq!(thinned_by(second(3, 0, 0), false, 30), [Operators]);
        assert_eq!(thinned_by(second(0, 9, 0), true, 30), [Stacks]);
        assert_eq!(thinned_by(second(0, 0, 1), true, 30), []);
    }

    #[test]
    fn what_is_left_is_said_once_if_it_is_above_the_budget() {
        use ThinnedPart::*;
        assert_eq!(thinned_by(second(0, 2, 4), true, 30), [Stacks, Rest]);
        let cheap = IntervalCost { stacks: 500_000, ..second(0, 0, 4) };
        assert_eq!(thinned_by(cheap, true, 30), [Rest], "stacks are not worth thinning");
    }

    #[test]
    fn a_peak_that_the_average_does_not_show_thins_nothing() {
        let mut budget = ProcessBudget::default();
        let none = IntervalCost { cpu: 1_000_000_000, ..IntervalCost::default() };
        for cost in [none, none, second(2, 0, 0), none, none, second(2, 0, 0), second(0, 0, 0)] {
            assert_eq!(budget.judge(cost, BUDGET, false), None);
        }
        let (part, share) = budget.judge(second(9, 0, 0), BUDGET, false).unwrap();
        assert_eq!((part, (share * 300.0).round()), (ThinnedPart::Operators, 11.0));
    }

    #[test]
    fn an_interval_lasts_until_the_process_has_worked_enough() {
        let work = |cpu_ns| RecordedWork { cpu_ns, ..RecordedWork::default() };
        let mut budget = ProcessBudget::default();
        assert!(budget.interval(work(100), 50).is_none());
        assert!(budget.interval(work(130), 50).is_none());
        assert_eq!(budget.interval(work(160), 50).unwrap().cpu_ns, 60);
        budget.forget_interval();
        assert!(budget.interval(work(900), 50).is_none());
    }
}
