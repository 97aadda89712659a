//! Computes median and spread of a set of durations, and finds outliers.

use super::moments::{mean, variance};

/// Modified z-score beyond which a value is an outlier: Iglewicz and Hoaglin, "How
/// to Detect and Handle Outliers" (1993).
const OUTLIER_SCORE: f64 = 3.5;
/// Ratio of the standard deviation to the median absolute deviation, in a normal distribution.
const MAD_TO_SIGMA: f64 = 1.4826;
/// Ratio of the standard deviation to the mean absolute deviation, in a normal distribution.
const MEAN_DEVIATION_TO_SIGMA: f64 = 1.2533;

/// Median and spread of a set of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Number of values.
    pub count: usize,
    /// The lowest value.
    pub min: u64,
    /// Middle value, or the mean of the two middle ones.
    pub median: f64,
    /// Arithmetic mean of the values.
    pub mean: f64,
    /// The highest value.
    pub max: u64,
    /// Standard deviation of the sample; `None` for a single value.
    pub deviation: Option<f64>,
    /// The standard deviation, estimated from the median absolute deviation, which a few outliers
    /// do not change. If more than half of the values are equal, it is estimated from the mean
    /// absolute deviation.
    pub robust_deviation: f64,
}

impl Spread {
    /// Describes these values; `None` if there are none.
    pub fn of(values: &[u64]) -> Option<Spread> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let count = sorted.len();
        let sorted: Vec<f64> = sorted.into_iter().map(|value| value as f64).collect();
        let median = middle(&sorted);
        let mean = mean(&sorted);
        let deviation = variance(&sorted, mean).map(f64::sqrt);
        let mut far: Vec<f64> = sorted.iter().map(|value| (value - median).abs()).collect();
        far.sort_unstable_by(f64::total_cmp);
        let mad = middle(&far);
        let robust_deviation = match mad > 0.0 {
            true => mad * MAD_TO_SIGMA,
            false => far.iter().sum::<f64>() / count as f64 * MEAN_DEVIATION_TO_SIGMA,
        };
        Some(Spread { count, min, median, mean, max, deviation, robust_deviation })
    }

    /// Number of robust standard deviations by which a value lies above the median.
    pub fn score(&self, value: u64) -> f64 {
        match self.robust_deviation > 0.0 {
            true => (value as f64 - self.median) / self.robust_deviation,
            false if value as f64 == self.median => 0.0,
            false => f64::INFINITY.copysign(value as f64 - self.median),
        }
    }

    /// Whether a value lies far from the others.
    pub fn is_outlier(&self, value: u64) -> bool {
        self.score(value).abs() > OUTLIER_SCORE
    }

    /// Whether a value lies far above the others.
    pub fn is_high(&self, value: u64) -> bool {
        self.score(value) > OUTLIER_SCORE
    }
}

fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[half],
        _ => (sorted[half - 1] + sorted[half]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_moves_the_deviation_but_not_the_robust_one() {
        let spread = Spread::of(&[10, 11, 9, 10, 12, 8, 100]).unwrap();
        assert_eq!((spread.count, spread.min, spread.median, spread.max), (7, 8, 10.0, 100));
        assert!(spread.deviation.unwrap() > 30.0);
        assert_eq!(spread.robust_deviation, 1.4826);
        assert!(spread.is_outlier(100) && spread.is_high(100));
        assert!(!spread.is_outlier(12));
        assert!(spread.is_outlier(1) && !spread.is_high(1));
    }

    #[test]
    fn a_few_odd_values_among_equal_ones_are_outliers() {
        let spread = Spread::of(&[7, 7, 7]).unwrap();
        assert!(!spread.is_outlier(7) && spread.is_outlier(8));
        // More than half of the values are equal, so the mean absolute deviation, 20/9, is used.
        let spread = Spread::of(&[10, 10, 10, 10, 10, 10, 10, 10, 30]).unwrap();
        assert!((spread.robust_deviation - 20.0 / 9.0 * 1.2533).abs() < 1e-9);
        assert!(spread.is_outlier(30));
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[5]).unwrap().deviation, None);
        assert_eq!(Spread::of(&[4, 8]).unwrap().median, 6.0);
    }
}
