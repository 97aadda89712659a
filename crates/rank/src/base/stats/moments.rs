//! Computes the mean, variance and median of values.

/// Arithmetic mean; 0 if there are no values.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Variance of a sample with this mean, with n - 1 in the denominator; `None` for fewer than two
/// values.
pub(super) fn variance(values: &[f64], mean: f64) -> Option<f64> {
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| squares / (values.len() - 1) as f64)
}

/// Median, which is the higher of the two middle values if their number is even; 0 if there are no
/// values.
pub fn median(mut values: Vec<u64>) -> u64 {
    if values.is_empty() {
        return 0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable(middle).1
}
