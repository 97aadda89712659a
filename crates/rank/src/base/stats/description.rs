//! Computes count, mean, deviation and quartiles of many values.

use super::moments::{mean, variance};

/// The description of a set of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Number of values.
    pub count: usize,
    /// Arithmetic mean of the values.
    pub mean: f64,
    /// Standard deviation of the sample; `None` for a single value.
    pub deviation: Option<f64>,
    /// The lowest value.
    pub min: f64,
    /// A quarter of the values lie below.
    pub lower_quartile: f64,
    /// Half of the values lie below.
    pub median: f64,
    /// A quarter of the values lie above.
    pub upper_quartile: f64,
    /// The highest value.
    pub max: f64,
}

impl Description {
    /// Describes these values, which it sorts; `None` if there are none. A quartile between two
    /// values is interpolated.
    pub fn of(values: &mut [f64]) -> Option<Description> {
        values.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let count = values.len();
        let mean = mean(values);
        Some(Description {
            count,
            mean,
            deviation: variance(values, mean).map(f64::sqrt),
            min,
            lower_quartile: quantile(values, 0.25),
            median: quantile(values, 0.5),
            upper_quartile: quantile(values, 0.75),
            max,
        })
    }
}

/// Returns the value below which this share of the sorted values lies, interpolated.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * sorted.len().saturating_sub(1) as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    match (sorted.get(low), sorted.get(low + 1)) {
        (Some(below), Some(above)) if part > 0.0 => below + (above - below) * part,
        (Some(below), _) => *below,
        _ => 0.0,
    }
}

/// Returns the interpolated quantiles of durations in any order, and sorts the durations.
pub fn quantiles<const N: usize>(values: &mut [u64], shares: [f64; N]) -> [f64; N] {
    values.sort_unstable();
    let sorted: Vec<f64> = values.iter().map(|value| *value as f64).collect();
    shares.map(|share| quantile(&sorted, share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_values() {
        let found = Description::of(&mut [4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((found.count, found.mean, found.min, found.max), (4, 2.5, 1.0, 4.0));
        assert_eq!((found.lower_quartile, found.median, found.upper_quartile), (1.75, 2.5, 3.25));
        assert!((found.deviation.unwrap() - 1.290_994_448_735_805_6).abs() < 1e-12);
    }

    #[test]
    fn one_value_has_no_deviation_and_none_no_description() {
        let found = Description::of(&mut [7.0]).unwrap();
        assert_eq!((found.deviation, found.median, found.upper_quartile), (None, 7.0, 7.0));
        assert_eq!(Description::of(&mut []), None);
    }
}
