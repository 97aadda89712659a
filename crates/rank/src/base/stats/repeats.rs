//! Computes means of repeated measurements, and the error of the difference of two means.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::moments::{mean, variance};

/// Repeats of one measurement, usually steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Repeats {
    /// Number of repeats.
    pub count: u64,
    /// Mean of the repeats.
    pub mean: f64,
    /// Variance of the repeats, with n - 1 in the denominator; 0 for fewer than two.
    pub variance: f64,
    /// The smallest repeat.
    pub min: f64,
    /// The largest repeat.
    pub max: f64,
}

impl Repeats {
    /// Describes these values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Repeats> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = mean(values);
        Some(Repeats {
            count: count as u64,
            mean,
            variance: variance(values, mean).unwrap_or(0.0),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }

    /// Standard deviation; `None` for a single value.
    pub fn deviation(&self) -> Option<f64> {
        (self.count > 1).then(|| self.variance.sqrt())
    }

    /// Half the width of the 95 % interval of the mean, by Student's t; `None` for a single value.
    pub fn mean_error(&self) -> Option<f64> {
        let freedom = self.count.checked_sub(1).filter(|&freedom| freedom > 0)? as f64;
        let t = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(0.975);
        Some(t * (self.variance / self.count as f64).sqrt())
    }
}

/// Half the width of the 95 % interval around the difference of two means, by Welch's t-test;
/// `None` unless both sides have at least two repeats.
///
/// Welch, B. L. (1947), "The generalization of Student's problem when several
/// different population variances are involved", Biometrika 34.
pub fn difference_error(a: &Repeats, b: &Repeats) -> Option<f64> {
    if a.count < 2 || b.count < 2 {
        return None;
    }
    let (na, nb) = (a.count as f64, b.count as f64);
    let (va, vb) = (a.variance / na, b.variance / nb);
    let variance = va + vb;
    if variance == 0.0 {
        return Some(0.0);
    }
    let freedom = variance.powi(2) / (va.powi(2) / (na - 1.0) + vb.powi(2) / (nb - 1.0));
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(0.975);
    Some(t * variance.sqrt())
}

/// Returns by how many times half a 95 % interval must be exceeded by one of `count` changes, so that
/// chance alone does that to any of them in 5 % of comparisons. At least 1.
///
/// Dunn, O. J. (1961), "Multiple comparisons among means", Journal of the American Statistical
/// Association 56 (Bonferroni's correction).
pub fn among_many(count: usize) -> f64 {
    let normal = Normal::standard();
    normal.inverse_cdf(1.0 - 0.025 / count.max(1) as f64) / normal.inverse_cdf(0.975)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_described() {
        let repeats = Repeats::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((repeats.count, repeats.mean, repeats.min, repeats.max), (8, 5.0, 2.0, 9.0));
        assert!((repeats.variance - 32.0 / 7.0).abs() < 1e-12);
        assert_eq!(Repeats::of(&[]), None);
        assert_eq!(Repeats::of(&[3.0]).unwrap().deviation(), None);
        // Eight values have seven degrees of freedom, for which any table of Student's t has 2.365.
        let error = repeats.mean_error().unwrap();
        assert!((error - 2.365 * (32.0_f64 / 7.0 / 8.0).sqrt()).abs() < 0.001, "{error}");
        assert_eq!(Repeats::of(&[3.0]).unwrap().mean_error(), None);
    }

    #[test]
    fn the_error_of_a_difference_is_that_of_welchs_test() {
        let range = |from: u32| (from..from + 6).map(f64::from).collect::<Vec<f64>>();
        let (a, b) = (Repeats::of(&range(0)).unwrap(), Repeats::of(&range(3)).unwrap());
        // Equal variances and sizes: 10 degrees of freedom, for which any table of
        // Student's t is 2.228; variance 3.5, standard error sqrt(3.5 / 3).
        let error = difference_error(&a, &b).unwrap();
        assert!((error - 2.228 * (3.5_f64 / 3.0).sqrt()).abs() < 0.001, "{error}");
        // If only one side varies, Welch's degrees of freedom are that side's own, 5, and t is
        // 2.571.
        let still = Repeats::of(&[1.0; 6]).unwrap();
        let error = difference_error(&a, &still).unwrap();
        assert!((error - 2.571 * (3.5_f64 / 6.0).sqrt()).abs() < 0.001, "{error}");
    }

    #[test]
    fn one_of_many_changes_has_to_be_larger() {
        // Quantiles of the normal distribution in any table: 1.960, 2.807 and 3.481.
        for (count, expected) in [(0, 1.0), (1, 1.0), (10, 2.807 / 1.960), (100, 3.481 / 1.960)] {
            let found = among_many(count);
            assert!((found - expected).abs() < 0.001, "{found} of {expected}");
        }
    }

    #[test]
    fn one_repeat_has_no_interval_and_equal_ones_a_narrow_one() {
        let (one, same) = (Repeats::of(&[1.0]).unwrap(), Repeats::of(&[5.0, 5.0]).unwrap());
        assert_eq!(difference_error(&one, &same), None);
        assert_eq!(difference_error(&same, &same), Some(0.0));
    }
}
