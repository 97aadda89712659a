//! Compares the rates of counted errors in slow steps with those in the other steps. Errors that the
//! machine corrects, such as packets that are sent again, always happen now and then. They are worth
//! a look if there are clearly more of them where steps are slow.

use tprof_metrics::machine::{MachineErrors, Rise, Totals};
use tprof_rank::base::intervals::{Cover, Interval};

use super::error_consequences::Events;

/// Least number of errors in slow steps.
const LEAST_ERRORS: f64 = 10.0;
/// Least ratio of the rate in slow steps to that in the other steps.
const LEAST_RATIO: f64 = 4.0;

/// The rates of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ErrorRates {
    /// Errors in slow steps.
    pub in_slow: f64,
    /// Length of the slow steps, ns.
    pub slow_ns: u64,
    /// Errors in the other steps.
    pub in_others: f64,
    /// Length of the other steps, ns.
    pub others_ns: u64,
}

impl ErrorRates {
    /// Returns the rates of a counter; `None` if there are no slow steps, or no others. Errors
    /// between two readings count as spread evenly over that time.
    pub(super) fn of(events: &Events, totals: &Totals) -> Option<ErrorRates> {
        let cover = |is_slow: bool| {
            let steps = events.steps.iter().filter(|step| events.is_slow(step) == is_slow);
            Cover::of(steps.map(|step| step.interval))
        };
        let slow = cover(true);
        // Steps on a device may overlap.
        let others = cover(false).without(&slow);
        if slow.length() == 0 || others.length() == 0 {
            return None;
        }
        let rises = MachineErrors::rises(totals);
        let within = |cover: &Cover| rises.iter().map(|rise| part(rise, cover)).sum();
        Some(ErrorRates {
            in_slow: within(&slow),
            slow_ns: slow.length(),
            in_others: within(&others),
            others_ns: others.length(),
        })
    }

    /// The rate in slow steps divided by the rate in the others.
    pub(super) fn ratio(&self) -> f64 {
        let expected = self.in_others / self.others_ns as f64 * self.slow_ns as f64;
        self.in_slow / expected.max(f64::MIN_POSITIVE)
    }

    /// Whether there are clearly more errors in slow steps.
    pub(super) fn are_higher_in_slow_steps(&self) -> bool {
        self.in_slow >= LEAST_ERRORS && self.ratio() >= LEAST_RATIO
    }

    /// Formats the rates: `540/s in slow steps and 2/s in the others`.
    pub(super) fn words(&self) -> String {
        let rate = |errors: f64, ns: u64| errors * 1e9 / ns as f64;
        format!(
            "{:.1}/s in slow steps and {:.1}/s in the others",
            rate(self.in_slow, self.slow_ns),
            rate(self.in_others, self.others_ns)
        )
    }
}

/// Returns the part of a rise that lies within a cover.
fn part(rise: &Rise, cover: &Cover) -> f64 {
    let Rise { from_ns, to_ns, count } = *rise;
    let all_ns = to_ns.saturating_sub(from_ns);
    match all_ns {
        // It isn't known when the errors happened before a file was opened.
        0 => 0.0,
        _ => {
            let within = Cover::of([Interval::new(from_ns, to_ns)]).intersection(cover);
            count * within.length() as f64 / all_ns as f64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rise_counts_by_the_part_of_its_time() {
        let cover = Cover::of([Interval::new(10, 20), Interval::new(30, 40)]);
        let rise = |from_ns, to_ns| Rise { from_ns, to_ns, count: 8.0 };
        assert_eq!(part(&rise(0, 40), &cover), 4.0);
        assert_eq!(part(&rise(20, 30), &cover), 0.0);
        assert_eq!(part(&rise(15, 15), &cover), 0.0);
    }

    #[test]
    fn a_few_errors_or_a_similar_rate_are_no_difference() {
        let rates = |in_slow, in_others| ErrorRates {
            in_slow,
            slow_ns: 1_000_000_000,
            in_others,
            others_ns: 4_000_000_000,
        };
        assert!(rates(540.0, 8.0).are_higher_in_slow_steps());
        assert!(!rates(9.0, 0.0).are_higher_in_slow_steps());
        assert!(!rates(100.0, 200.0).are_higher_in_slow_steps());
        assert_eq!(rates(540.0, 8.0).words(), "540.0/s in slow steps and 2.0/s in the others");
    }
}
