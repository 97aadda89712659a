//! Computes an upper bound of the CPU time that the job spends in tprof's library, from the job's
//! own CPU samples. The unit costs of hooks are measured in a small program of the collector. In a
//! job they may be higher: its data fills the caches, its branches fill the predictor, and it calls
//! a hook only now and then. In cc1, for example, hooks with unit costs of 1.7 to 6.3 ns take 12.6
//! ns per event.
//!
//! Samples can't tell a lower bound. A hook may be the first to touch memory that the job touches
//! next, and then the hook waits for that memory instead of the job. In `malloc_mixed`, 26 % of the
//! samples are in the hook of `free`, which reads the block's header before the allocator does.
//! Without tprof, however, the job takes only 9 % less CPU time.

/// The quantile of the normal distribution that leaves 2.5 % on either side.
const Z: f64 = 1.96;

/// Returns the largest CPU time that samples may stand for, ns. `found_ns` is the time that the
/// samples in the library stand for, `period_ns` the time that each stands for at most. The result
/// is the upper end of the 95 % score interval of a Poisson count, which is valid for few samples
/// too: even if none was found, up to 3.8 may have been expected.
pub fn at_most(found_ns: u64, period_ns: u64) -> u64 {
    let found = found_ns as f64 / period_ns.max(1) as f64;
    let samples = found + Z * Z / 2.0 + Z * (found + Z * Z / 4.0).sqrt();
    (samples * period_ns as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_samples_have_wide_bounds() {
        assert_eq!(at_most(0, 1_000_000_000) / 1_000_000, 3_841);
        assert_eq!(at_most(100_000_000, 1_000_000) / 1_000_000, 121);
        assert!(at_most(10_000_000, 1_000) < 10_200_000);
    }
}
