//! Computes how many allocations each sampled allocation represents, and the error of sums of these
//! weights.
//!
//! Under `--mem sampled`, bytes are drawn by a Poisson process with one draw per interval `I`. An
//! allocation of `s` bytes is recorded with probability `p = 1 - exp(-s/I)` and represents `1/p`
//! allocations of its kind (Horvitz-Thompson). Allocations of `I` bytes and more are always
//! recorded. The variance of the sum is estimated by `Σ s²(1-p)/p²`.

use tprof_rank::base::reading::Reading;

/// Half the width of the 95 % interval of a normal variable, in standard deviations.
pub(crate) const Z: f64 = 1.96;

/// The amounts that one recorded allocation adds to the sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Weight {
    /// Number of bytes that the allocation represents.
    pub bytes: u64,
    /// Number of allocations that it represents.
    pub count: f64,
    /// The variance that it adds to the count. The variance of the bytes is this times `s²`.
    pub variance: f64,
}

/// Weighs an allocation of `size` bytes; `interval` is `None` if every allocation is recorded.
#[inline]
pub(crate) fn weigh(size: u64, interval: Option<u64>) -> Weight {
    match interval {
        None => Weight { bytes: size, count: 1.0, variance: 0.0 },
        Some(interval) if size >= interval => Weight { bytes: size, count: 1.0, variance: 0.0 },
        Some(interval) => sampled(size, interval),
    }
}

fn sampled(size: u64, interval: u64) -> Weight {
    let size = size.max(1) as f64;
    let p = -(-size / interval as f64).exp_m1();
    Weight { bytes: (size / p).round() as u64, count: 1.0 / p, variance: (1.0 - p) / (p * p) }
}

/// Half the width of the 95 % interval of a sum with this variance, in which each recorded
/// allocation represents at most `unit`.
///
/// The normal interval is too narrow if only a few samples were drawn. This is the upper (longer)
/// side of the score interval of a Poisson count, in units of `unit`. For many samples it
/// approaches `1.96 · sqrt(variance)`.
pub(crate) fn error(variance: f64, unit: f64) -> f64 {
    let half = Z * Z / 2.0 * unit;
    half + (Z * Z * variance.max(0.0) + half * half).sqrt()
}

/// Combines the estimate `value`, which is within `error`, with the certain bounds `least` and
/// `most`.
pub(crate) fn bounded(value: i64, error: u64, least: i64, most: i64) -> Reading<i64> {
    let error = i64::try_from(error).unwrap_or(i64::MAX);
    let inside = value.clamp(least, most.max(least));
    let low = value.saturating_sub(error).max(least);
    let high = value.saturating_add(error).min(most);
    // If the interval lies outside of the certain bounds, only the bounds are known.
    let error = match low <= high {
        true => inside.saturating_sub(low).max(high.saturating_sub(inside)),
        false => error.min(most.saturating_sub(least)),
    };
    Reading::Estimate { value: inside, error }
}

/// A weighted mean with its error, for example of the lifetimes of sampled blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mean {
    /// Number of recorded blocks.
    pub samples: u64,
    weight: f64,
    sum: f64,
    v0: f64,
    v1: f64,
    v2: f64,
}

impl Mean {
    #[inline]
    pub fn add(&mut self, weight: Weight, value: f64) {
        self.samples += 1;
        self.weight += weight.count;
        self.sum += weight.count * value;
        if weight.variance != 0.0 {
            self.v0 += weight.variance;
            self.v1 += weight.variance * value;
            self.v2 += weight.variance * value * value;
        }
    }

    /// The mean and its 95 % error; `None` without data.
    pub fn result(&self) -> Option<(f64, f64)> {
        if self.weight <= 0.0 {
            return None;
        }
        let mean = self.sum / self.weight;
        let variance = self.v2 - 2.0 * mean * self.v1 + mean * mean * self.v0;
        Some((mean, Z * variance.max(0.0).sqrt() / self.weight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small random number generator: the tests must draw the same numbers on every run.
    struct Draws(u64);
    impl Draws {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let x = (self.0 ^ (self.0 >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((x ^ (x >> 32)) >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    #[test]
    fn blocks_of_at_least_one_interval_represent_only_themselves() {
        for size in [512, 513, 1 << 40] {
            assert_eq!(weigh(size, Some(512)), Weight { bytes: size, count: 1.0, variance: 0.0 });
        }
        assert_eq!(weigh(0, None).bytes, 0);
        assert!(weigh(0, Some(512)).bytes >= 512);
    }

    #[test]
    fn the_true_sum_lies_within_the_error_in_95_of_100_runs() {
        let mut draws = Draws(7);
        let interval = 512 * 1024;
        for size in [64u64, 4096, 100_000, 400_000] {
            let p = -(-(size as f64) / interval as f64).exp_m1();
            for expected in [1.0, 3.0, 10.0, 100.0] {
                let n = (expected / p).round().max(1.0) as u64;
                let truth = (n * size) as f64;
                let (mut within, mut runs) = (0, 0);
                for _ in 0..2000 {
                    // The number of samples has a binomial distribution. For many blocks, where `p`
                    // is small, a Poisson distribution approximates it.
                    let seen = if n < 2000 {
                        (0..n).filter(|_| draws.next() < p).count() as u64
                    } else {
                        poisson(&mut draws, n as f64 * p)
                    };
                    if seen == 0 {
                        continue; // Such a site is not listed.
                    }
                    let w = weigh(size, Some(interval));
                    let value = w.bytes as f64 * seen as f64;
                    let variance = w.variance * (size * size) as f64 * seen as f64;
                    runs += 1;
                    within += ((value - truth).abs() <= error(variance, interval as f64)) as u32;
                }
                let share = f64::from(within) / f64::from(runs);
                assert!(share >= 0.95, "size {size}, {expected} samples expected: {share}");
            }
        }
    }

    fn poisson(draws: &mut Draws, mean: f64) -> u64 {
        let (mut k, mut product) = (0, draws.next());
        let limit = (-mean).exp();
        while product > limit {
            k += 1;
            product *= draws.next();
        }
        k
    }

    #[test]
    fn an_estimate_is_limited_to_possible_values() {
        let is = |value, error| Reading::Estimate { value, error };
        assert_eq!(bounded(28, 12, -21, 21), is(21, 5));
        assert_eq!(bounded(10, 5, -21, 21), is(10, 5));
        assert_eq!(bounded(18, 10, 0, 21), is(18, 10));
        assert_eq!(bounded(2, 10, 0, 21), is(2, 10));
        assert_eq!(bounded(-3, 30, -21, 21), is(-3, 24));
        assert_eq!(bounded(50, 5, -21, 21), is(21, 5));
        assert_eq!(bounded(i64::MAX, u64::MAX, 0, 21), is(21, 21));
    }

    #[test]
    fn a_mean_over_everything_has_no_error() {
        let mut mean = Mean::default();
        assert_eq!(mean.result(), None);
        for value in [1.0, 2.0, 6.0] {
            mean.add(weigh(10, None), value);
        }
        assert_eq!(mean.result(), Some((3.0, 0.0)));
    }
}
