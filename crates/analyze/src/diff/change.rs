//! How a metric changed, and what that means.

use super::figures::{Better, Metric};
use crate::base::reading::Reading;
use crate::base::stats::Repeats;

/// How a metric changed.
#[derive(Clone, Debug)]
pub struct Change {
    /// Value of A: a mean over steps, or the run's.
    pub a: Reading<f64>,
    /// Value of B.
    pub b: Reading<f64>,
    /// Half the width of the 95 % interval of the difference, where there were repeats or
    /// samples.
    pub error: Option<f64>,
    /// Repeats on either side; none of a run's figure.
    pub repeats: Option<(Repeats, Repeats)>,
}

impl Change {
    /// Of figures of whole runs: what is uncertain of them are the estimates.
    pub fn of_runs(a: Reading<f64>, b: Reading<f64>) -> Change {
        let error = match (a.error(), b.error()) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(&0.0).hypot(*b.unwrap_or(&0.0))),
        };
        Change { a, b, error, repeats: None }
    }

    /// B minus A.
    pub fn difference(&self) -> Option<f64> {
        Some(self.b.get()? - self.a.get()?)
    }

    /// What the change means, in a word or two.
    pub fn verdict(&self, metric: &Metric, same_hardware: bool) -> &'static str {
        let (Some(a), Some(difference)) = (self.a.get(), self.difference()) else { return "?" };
        if difference == 0.0 {
            return "same";
        }
        if metric.of_hardware && !same_hardware {
            return "other hardware";
        }
        if let Some(error) = self.error.filter(|error| difference.abs() <= *error) {
            return within_noise(error, a.abs().max((a + difference).abs()));
        }
        let repeated = self.repeats.is_some() && self.error.is_some();
        if !repeated && difference.abs() < metric.noise * a.abs() {
            return "same";
        }
        let toward = match metric.better {
            Better::Less => -difference,
            Better::More => difference,
            Better::Neither => return "changed",
        };
        // Without repeats it may be chance.
        match (toward > 0.0, repeated) {
            (true, true) => "better",
            (false, true) => "worse",
            (true, false) => "better?",
            (false, false) => "worse?",
        }
    }
}

/// From this share of the values on, an interval hides a change that matters.
const WIDE: f64 = 0.1;

/// A change within its interval: the same, unless the interval is wide beside the values.
pub(super) fn within_noise(error: f64, largest: f64) -> &'static str {
    if error <= WIDE * largest { "same" } else { "not sure" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::figures::find;

    fn of_run(a: f64, b: f64) -> Change {
        Change::of_runs(Reading::Is(a), Reading::Is(b))
    }

    #[test]
    fn a_change_within_noise_is_none() {
        let wall = find("wall_time").unwrap();
        let verdicts = [(1e9, 0.9999e9), (1e9, 1.0099e9), (1e9, 1.02e9), (1e9, 0.98e9)]
            .map(|(a, b)| of_run(a, b).verdict(wall, true));
        assert_eq!(verdicts, ["same", "same", "worse?", "better?"]);
    }

    #[test]
    fn samples_leave_open_what_they_leave_open() {
        let cpu = find("cpu_time").unwrap();
        let of = |b| {
            let estimate = |value| Reading::Estimate { value, error: 3e7 };
            Change::of_runs(estimate(1e9), estimate(b))
        };
        assert!((of(1e9).error.unwrap() - 3e7 * 2.0_f64.sqrt()).abs() < 1.0);
        assert_eq!(of(1.04e9).verdict(cpu, true), "same");
        let rough = |value| Reading::Estimate { value, error: 2e8 };
        let change = Change::of_runs(rough(1e9), rough(1.04e9));
        assert_eq!(change.verdict(cpu, true), "not sure");
        assert_eq!(of(1.05e9).verdict(cpu, true), "worse?");
    }

    #[test]
    fn other_hardware_is_no_better_and_no_worse() {
        let verdict = |key| of_run(1e9, 2e9).verdict(find(key).unwrap(), false);
        assert_eq!([verdict("wall_time"), verdict("cpu_time")], ["other hardware"; 2]);
        assert_eq!(verdict("peak_heap"), "worse?", "the program asks for that");
    }
}
