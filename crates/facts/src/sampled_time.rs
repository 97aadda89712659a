//! Bounds of the time that CPU samples of one kind stand for.
//!
//! A sample stands for the time between two samples, its period. A budget thins the samples of a
//! run, so that later ones have a longer period.

use std::collections::BTreeMap;

/// The quantile of the normal distribution that leaves 2.5 % on either side.
const Z: f64 = 1.96;
/// Samples with more periods than this are not those of a clock. Then each counts as one of the
/// longest.
const MOST_PERIODS: usize = 16;

/// Numbers of samples of one kind by their period, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledTime {
    by_period: BTreeMap<u64, u64>,
}

impl SampledTime {
    /// Takes numbers of samples of the kind by their period, ns. A period without such samples has an
    /// entry, too.
    pub fn of(by_period: BTreeMap<u64, u64>) -> SampledTime {
        SampledTime { by_period }
    }

    /// Notes a sample with this period, which is or isn't of the kind. Those that aren't say that
    /// the absence of others means something.
    pub fn sample(&mut self, period_ns: u64, is_of_kind: bool) {
        *self.by_period.entry(period_ns).or_default() += u64::from(is_of_kind);
    }

    /// Whether anything was sampled.
    pub fn is_known(&self) -> bool {
        self.by_period.keys().any(|period_ns| *period_ns > 0)
    }

    /// Returns the number of samples of the kind.
    pub fn count(&self) -> u64 {
        self.by_period.values().sum()
    }

    /// Returns the least and the largest time that the samples of the kind may stand for, ns.
    ///
    /// For each period, these are the ends of the 95 % score interval of a Poisson count, which is
    /// valid for few samples too: even if none was found, up to 3.8 may have been expected. The
    /// distances of these ends from the counts are joined as those of independent estimates, by the
    /// square root of the sum of their squares. So a long period widens the interval by what its own
    /// samples leave open, and not by what those of shorter periods do.
    pub fn bounds_ns(&self) -> [f64; 2] {
        let time_ns = |(period_ns, count): (&u64, &u64)| *period_ns as f64 * *count as f64;
        let all_ns: f64 = self.by_period.iter().map(time_ns).sum();
        let longest_ns = self.by_period.keys().max().map_or(0.0, |period_ns| *period_ns as f64);
        if self.by_period.len() > MOST_PERIODS && longest_ns > 0.0 {
            let [below, above] = open(all_ns / longest_ns);
            return [all_ns - below * longest_ns, all_ns + above * longest_ns];
        }
        let squares = self.by_period.iter().fold([0.0; 2], |sums, (period_ns, count)| {
            let of_count = open(*count as f64);
            [0, 1].map(|at| sums[at] + (of_count[at] * *period_ns as f64).powi(2))
        });
        [(all_ns - squares[0].sqrt()).max(0.0), all_ns + squares[1].sqrt()]
    }
}

/// Returns by how much the expected number of samples may be below and above this number.
fn open(count: f64) -> [f64; 2] {
    let half = Z * (count + Z * Z / 4.0).sqrt();
    [(half - Z * Z / 2.0).min(count), half + Z * Z / 2.0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds_ms(by_period_ms: &[(u64, u64)]) -> [u64; 2] {
        let by_period = by_period_ms.iter().map(|(ms, count)| (ms * 1_000_000, *count)).collect();
        SampledTime { by_period }.bounds_ns().map(|ns| (ns / 1e6) as u64)
    }

    #[test]
    fn few_samples_have_wide_bounds() {
        assert_eq!(bounds_ms(&[(1000, 0)]), [0, 3_841]);
        assert_eq!(bounds_ms(&[(1, 100)]), [82, 121]);
        assert_eq!(bounds_ms(&[(10, 1_000_000)]), [9_980_419, 10_019_619]);
        assert_eq!(bounds_ms(&[]), [0, 0]);
    }

    #[test]
    fn samples_that_were_thinned_later_keep_the_bound_of_those_before() {
        let before = (10, 100);
        assert_eq!(bounds_ms(&[before])[1], 1_216);
        // At a quarter of the rate, and at a quarter of that, no sample was of the kind. A bound of
        // as many samples of the longest period would be 2,149.
        assert_eq!(bounds_ms(&[before, (40, 0)])[1], 1_265);
        assert_eq!(bounds_ms(&[before, (40, 0), (160, 0)])[1], 1_669);
    }

    #[test]
    fn samples_of_many_periods_count_as_the_longest() {
        let periods: Vec<(u64, u64)> = (1..=100).map(|ms| (ms, 1)).collect();
        let [low, high] = bounds_ms(&periods);
        // 5,050 ms are 50.5 samples of 100 ms.
        assert_eq!([low, high], [3_836, 6_648]);
    }

    #[test]
    fn a_kind_is_known_once_anything_was_sampled() {
        let mut time = SampledTime::default();
        assert!(!time.is_known());
        time.sample(10, false);
        time.sample(10, true);
        assert!(time.is_known());
        assert_eq!(time.count(), 1);
    }
}
