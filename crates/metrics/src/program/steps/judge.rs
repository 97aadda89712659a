//! Judges step times: where warm-up ends, how steady the rest is, and which steps are outliers.

use tprof_facts::steps::{Batches, Bounds, Estimate, StepSource};
use tprof_facts::units::counted;
use tprof_rank::Step;
use tprof_rank::base::reading::Reading;
use tprof_rank::base::stats::Spread;

use super::device_time_by_class::StepDeviceTime;
use super::phases::PhaseRow;
use crate::program::flops::StepUse;

/// Minimum number of steps for finding the end of warm-up.
const FEWEST_FOR_WARM_UP: usize = 6;
/// Minimum number of steps after warm-up for finding outliers.
const FEWEST_FOR_OUTLIERS: usize = 4;
/// An outlier differs from the median by at least this share of it. In a run that is steady to a
/// thousandth, a step that is two thousandths off deserves no attention.
const LEAST_SHARE: f64 = 0.05;

/// The source of a rank's steps, and facts about it and other sources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOrigin {
    /// The source; `None` if the rank has no steps.
    pub source: Option<StepSource>,
    /// Other sources that have steps, with the number of their steps.
    pub others: Vec<(StepSource, usize)>,
    /// If updates or marks delimit the steps, how many of them there are.
    pub bounds: Option<Bounds>,
    /// Batches of the data loader, if there are batches besides the optimizer's updates.
    pub batches: Option<Batches>,
    /// Number of updates that a gradient scaler skipped; `None` if no scaler was recorded.
    pub skipped: Option<usize>,
    /// For inferred steps, what repeats from step to step.
    pub estimate: Option<Estimate>,
}

/// A rank's steps, with the judgement on them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JudgedSteps {
    /// The steps, in order of time.
    pub steps: Vec<Step>,
    /// The source of the steps, and the other sources that were found.
    pub found: StepOrigin,
    /// Number of steps at the beginning that are warm-up; `None` if that is unknown.
    pub warm_up: Option<usize>,
    /// Median and spread of the steps after warm-up.
    pub steady: Option<Spread>,
    /// Indices of the steps after warm-up that are far from the median; `None` if there are too few
    /// steps.
    pub outliers: Option<Vec<usize>>,
    /// Device time of each step; empty unless it was asked for.
    pub(crate) times: Vec<StepDeviceTime>,
    /// How well each step used the rank's devices; empty if it wasn't asked for, or if no sizes of
    /// operators were recorded.
    pub(crate) uses: Vec<StepUse>,
    /// Time in each step in which `torch.compile` compiled, ns; `None` if there is no whole log of
    /// it on the run's clock.
    pub compiled_ns: Option<Vec<u64>>,
    /// Number of steps that `--steady` left out.
    pub left_out: Option<usize>,
    /// Epochs, validation and checkpoints, in order of time.
    pub phases: Vec<PhaseRow>,
}

impl JudgedSteps {
    /// Judges steps, which are in order of time.
    pub fn of(steps: Vec<Step>) -> JudgedSteps {
        let times: Vec<u64> = steps.iter().map(|step| step.time().length()).collect();
        let warm_up = warm_up(&times);
        let first = warm_up.unwrap_or(0);
        let steady = Spread::of(&times[first..]);
        let stands_out = |s: &Spread, time| s.is_outlier(time) && is_far(s, time);
        let is_outlier = |at: &usize| steady.as_ref().is_some_and(|s| stands_out(s, times[*at]));
        let outliers = (times.len() - first >= FEWEST_FOR_OUTLIERS)
            .then(|| (first..times.len()).filter(is_outlier).collect());
        let found = StepOrigin::default();
        JudgedSteps {
            steps,
            found,
            warm_up,
            steady,
            outliers,
            times: Vec::new(),
            uses: Vec::new(),
            compiled_ns: None,
            left_out: None,
            phases: Vec::new(),
        }
    }

    /// Whether the steps were timed on a device.
    pub(super) fn is_by_device(&self) -> bool {
        self.steps.iter().any(|step| step.on_device.is_some())
    }

    /// Returns the median host time of the steps after warm-up; `None` if steps weren't timed on a
    /// device.
    pub(super) fn host_median_ns(&self) -> Option<f64> {
        let steady = self.steps.iter().skip(self.warm_up.unwrap_or(0));
        let times: Vec<u64> = steady.map(|step| step.interval.length()).collect();
        Spread::of(&times).filter(|_| self.is_by_device()).map(|spread| spread.median)
    }

    /// Returns the number of warm-up steps, or the reason why it isn't known.
    pub fn warm_up(&self) -> Reading<u64> {
        match self.warm_up {
            Some(steps) => Reading::Is(steps as u64),
            None => Reading::missing(format!(
                "{} are too few to find the warm-up; {FEWEST_FOR_WARM_UP} are enough",
                counted(self.steps.len() as u64, "step", "steps")
            )),
        }
    }

    /// Returns the number of outliers after warm-up, or the reason why it isn't known.
    pub fn outlier_count(&self) -> Reading<u64> {
        match &self.outliers {
            Some(outliers) => Reading::Is(outliers.len() as u64),
            None => Reading::missing(format!(
                "too few steps to find outliers; {FEWEST_FOR_OUTLIERS} after warm-up are enough"
            )),
        }
    }
}

/// Returns the number of steps at the beginning that are warm-up, given the durations of all steps,
/// ns. Warm-up ends at the first step that isn't slower than the second half of the run, allowing
/// for its spread. Returns `None` if there are too few steps.
pub fn warm_up(times: &[u64]) -> Option<usize> {
    if times.len() < FEWEST_FOR_WARM_UP {
        return None;
    }
    let (first_half, second_half) = times.split_at(times.len() / 2);
    let settled = Spread::of(second_half)?;
    let is_slow = |time| settled.is_high(time) && is_far(&settled, time);
    let end = first_half.iter().position(|&time| !is_slow(time));
    Some(end.unwrap_or(first_half.len()))
}

/// Whether a time differs enough from the median to matter.
fn is_far(spread: &Spread, time: u64) -> bool {
    (time as f64 - spread.median).abs() >= spread.median * LEAST_SHARE
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tprof_rank::base::intervals::Interval;

    use super::*;

    fn judged(times: &[u64]) -> JudgedSteps {
        let mut start = 1000;
        let step = |(&time, number): (&u64, u64)| {
            start += time;
            Step::on_host(number, 0, Interval::new(start - time, start))
        };
        JudgedSteps::of(times.iter().zip(0..).map(step).collect())
    }

    #[test]
    fn warm_up_ends_at_the_first_step_as_fast_as_the_second_half() {
        let judged = judged(&[900, 300, 101, 99, 100, 102, 98, 100, 400, 100]);
        assert_eq!(judged.warm_up(), Reading::Is(2));
        let steady = judged.steady.as_ref().unwrap();
        assert_eq!((steady.count, steady.min, steady.median, steady.max), (8, 98, 100.0, 400));
        assert_eq!(judged.outliers, Some(vec![8]));
    }

    #[test]
    fn a_steady_run_has_no_warm_up() {
        let judged = judged(&[100, 101, 99, 100, 102, 98]);
        assert_eq!(judged.warm_up(), Reading::Is(0));
        assert_eq!(judged.outlier_count(), Reading::Is(0));
    }

    #[test]
    fn a_step_that_is_a_little_off_a_very_steady_run_is_not_an_outlier() {
        let judged = judged(&[10_300, 10_000, 10_001, 9_999, 10_000, 10_002, 9_700, 10_600]);
        assert_eq!(judged.warm_up(), Reading::Is(0));
        assert_eq!(judged.outliers, Some(vec![7]));
    }

    #[test]
    fn too_few_steps_are_reported_as_such() {
        let judged = judged(&[900, 100, 100]);
        assert!(matches!(judged.warm_up(), Reading::Missing(_)));
        assert!(matches!(judged.outlier_count(), Reading::Missing(_)));
        assert_eq!(judged.steady.unwrap().count, 3);
        assert_eq!(JudgedSteps::of(Vec::new()).steady, None);
    }

    proptest! {
        #[test]
        fn warm_up_and_steady_steps_are_all_steps(times in prop::collection::vec(0_u64..1000, 0..40)) {
            let judged = judged(&times);
            let warm_up = judged.warm_up.unwrap_or(0);
            let steady = judged.steady.as_ref().map_or(0, |steady| steady.count);
            prop_assert_eq!(warm_up + steady, times.len());
            prop_assert!(warm_up <= times.len() / 2);
            for at in judged.outliers.unwrap_or_default() {
                prop_assert!(at >= warm_up && at < times.len());
            }
        }
    }
}
