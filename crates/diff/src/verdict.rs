//! Computes the change of a metric, and the verdict on it.

use tprof_rank::base::reading::Reading;
use tprof_rank::base::stats::Repeats;

use super::figures::{BetterWhen, Metric};

/// The change of a metric between two sides.
#[derive(Clone, Debug)]
pub struct Change {
    /// The value of side A: a mean over steps, or the value of the whole run.
    pub a: Reading<f64>,
    /// The value of side B.
    pub b: Reading<f64>,
    /// Half the width of the 95 % interval of the difference, if there were repeats or samples.
    pub error: Option<f64>,
    /// Repeats on either side; `None` for a metric of the whole run.
    pub repeats: Option<(Repeats, Repeats)>,
    /// For a wall time, the change of the time in which the driving threads had no core: B minus A,
    /// in the metric's unit. `None` if that time is unknown.
    pub lost: Option<f64>,
}

impl Change {
    /// Returns the change between values of whole runs. Its only uncertainty is that of estimates.
    pub fn of_runs(a: Reading<f64>, b: Reading<f64>) -> Change {
        let error = match (a.error(), b.error()) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(&0.0).hypot(*b.unwrap_or(&0.0))),
        };
        Change { a, b, error, repeats: None, lost: None }
    }

    /// Returns the difference B minus A.
    pub fn difference(&self) -> Option<f64> {
        Some(self.b.get()? - self.a.get()?)
    }

    /// Returns the change without the effect of the machine's load, if that effect alone changes
    /// the verdict: from no change to a slowdown or an improvement, or the reverse. Otherwise
    /// returns `None`.
    pub fn without_load(&self, metric: &Metric) -> Option<f64> {
        let (a, difference, lost) = (self.a.get()?.abs(), self.difference()?, self.lost?);
        let error = self.error.unwrap_or(metric.noise * a);
        let way = |change: f64| if change.abs() > error { change.signum() } else { 0.0 };
        let without = difference - lost;
        // The load changes the verdict only if it is at least half of the change, or half of the
        // smallest change that counts.
        let is_much = 2.0 * lost.abs() > difference.abs().max(error);
        // If the load made the interval wide, any change may hide in it.
        let is_open = way(difference) == 0.0 && error > WIDE * a.max(a + difference);
        let is_open = is_open && lost.abs() > difference.abs().max(metric.noise * a);
        (is_open || is_much && way(difference) != way(without)).then_some(without)
    }

    /// Returns the verdict on the change, in a few words.
    pub fn verdict(&self, metric: &Metric, same_hardware: bool) -> &'static str {
        let (Some(a), Some(difference)) = (self.a.get(), self.difference()) else { return "?" };
        if difference == 0.0 {
            return "same";
        }
        if metric.of_hardware && !same_hardware {
            return "other hardware";
        }
        if self.without_load(metric).is_some() {
            return LOAD_DIFFERED;
        }
        if let Some(error) = self.error.filter(|error| difference.abs() <= *error) {
            return within_noise(error, a.abs().max((a + difference).abs()));
        }
        let repeated = self.repeats.is_some() && self.error.is_some();
        if !repeated && difference.abs() < metric.noise * a.abs() {
            return "same";
        }
        let toward = match metric.better {
            BetterWhen::Less => -difference,
            BetterWhen::More => difference,
            BetterWhen::Neither => return "changed",
        };
        // Without repeats, chance may have caused the change.
        match (toward > 0.0, repeated) {
            (true, true) => "better",
            (false, true) => "worse",
            (true, false) => "better?",
            (false, false) => "worse?",
        }
    }
}

/// The verdict on a wall time whose change the load of other programs may explain.
pub(super) const LOAD_DIFFERED: &str = "not sure: load differed";

/// An interval wider than this share of the values may hide a change that matters.
const WIDE: f64 = 0.1;

/// Returns the verdict on a change within its interval: `same`, unless the interval is wide
/// relative to the values.
pub(super) fn within_noise(error: f64, largest: f64) -> &'static str {
    if error <= WIDE * largest { "same" } else { "not sure" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::find;

    fn of_run(a: f64, b: f64) -> Change {
        Change::of_runs(Reading::Is(a), Reading::Is(b))
    }

    #[test]
    fn a_change_within_noise_counts_as_same() {
        let wall = find("wall_time").unwrap();
        let verdicts = [(1e9, 0.9999e9), (1e9, 1.0099e9), (1e9, 1.02e9), (1e9, 0.98e9)]
            .map(|(a, b)| of_run(a, b).verdict(wall, true));
        assert_eq!(verdicts, ["same", "same", "worse?", "better?"]);
    }

    #[test]
    fn a_wide_interval_of_samples_gives_no_verdict() {
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
    fn load_that_explains_a_change_prevents_a_verdict() {
        let step_time = find("step_time").unwrap();
        let verdict = |difference: f64, error: f64, lost: f64| {
            let [a, b] = [[27.0, 29.0, 28.0], [27.0, 29.0, 28.0].map(|ms| ms + difference)];
            let repeats = Repeats::of(&a).zip(Repeats::of(&b));
            let (a, b) = (Reading::Is(28.0), Reading::Is(28.0 + difference));
            Change { a, b, error: Some(error), repeats, lost: Some(lost) }.verdict(step_time, true)
        };
        // Code became slower while the machine became free.
        assert_eq!(verdict(-8.8, 6.4, -22.8), LOAD_DIFFERED);
        assert_eq!(verdict(0.1, 2.0, -9.0), LOAD_DIFFERED);
        assert_eq!(verdict(-5.0, 20.0, -9.0), LOAD_DIFFERED);
        assert_eq!(verdict(-5.0, 20.0, -4.0), "not sure");
        // All of the change comes from lost cores, or the rest of it is within the interval.
        assert_eq!(verdict(8.0, 1.0, 8.0), LOAD_DIFFERED);
        assert_eq!(verdict(8.0, 3.0, 5.5), LOAD_DIFFERED);
        // The change remains without the load, or even grows.
        assert_eq!(verdict(8.0, 1.0, 3.0), "worse");
        assert_eq!(verdict(8.0, 1.0, -20.0), "worse");
        assert_eq!(verdict(-8.0, 1.0, 0.0), "better");
        assert_eq!(verdict(0.1, 2.0, 0.3), "same");
        // The load grew a little, and the change is barely outside of its interval.
        assert_eq!(verdict(1.0, 0.9, 0.15), "worse");
    }

    #[test]
    fn other_hardware_is_neither_better_nor_worse() {
        let verdict = |key| of_run(1e9, 2e9).verdict(find(key).unwrap(), false);
        assert_eq!([verdict("wall_time"), verdict("cpu_time")], ["other hardware"; 2]);
        assert_eq!(verdict("peak_heap"), "worse?", "the program asks for that");
    }
}
