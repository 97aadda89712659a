//! What the job's own CPU samples show of tprof's library. Unit costs are measured in a program
//! of the collector's; a job has other memory in its caches and other branches in its predictor,
//! and calls a hook now and then. In cc1, hooks priced at 1.7 to 6.3 ns take 12.6 ns an event.

/// Where the normal distribution has 2.5 % on either side.
const Z: f64 = 1.96;

/// Least and most CPU time that `found` samples stand for, ns: the 95 % score interval of a Poisson
/// count, which holds for few samples too. None found is up to 3.8 of them.
pub fn bounds(found: u64, period_ns: u64) -> [u64; 2] {
    let found = found as f64;
    let middle = found + Z * Z / 2.0;
    let half = Z * (found + Z * Z / 4.0).sqrt();
    [middle - half, middle + half].map(|samples| (samples.max(0.0) * period_ns as f64) as u64)
}

/// What samples show beyond unit costs of at most `priced_high`, ns.
pub fn beyond(found: [u64; 2], priced_high: u64) -> [u64; 2] {
    found.map(|ns| ns.saturating_sub(priced_high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_samples_have_wide_bounds() {
        assert_eq!(bounds(0, 1_000_000_000).map(|ns| ns / 1_000_000), [0, 3_841]);
        assert_eq!(bounds(100, 1_000_000).map(|ns| ns / 1_000_000), [82, 121]);
        let [low, high] = bounds(10_000, 1_000);
        assert!(low > 9_800_000 && high < 10_200_000);
    }

    #[test]
    fn nothing_is_beyond_what_was_priced() {
        assert_eq!(beyond([5, 9], 10), [0, 0]);
        assert_eq!(beyond([5, 19], 10), [0, 9]);
        assert_eq!(beyond([15, 19], 10), [5, 9]);
    }
}
