//! Converts times of CUPTI's clock to the run's clock. The agent reads both clocks together from
//! time to time, and times between two such joins are interpolated. According to NVIDIA's headers,
//! CUPTI's clock is CLOCK_REALTIME on Linux, CLOCK_MONOTONIC_RAW in WSL, or a clock that a client
//! has chosen. Each of them drifts, and CLOCK_REALTIME can be set, so no single conversion is valid
//! for a whole run.

use crate::shared::clock::LATEST_NS;
use std::collections::VecDeque;

/// Number of joins that are kept, which cover some minutes, because CUPTI's buffers may come late.
const KEPT: usize = 16_384;
/// Largest drift of a clock, in parts per million. If two joins differ by more, the clock was set.
const DRIFT_PPM: u64 = 1_000;
/// Largest difference between two joins of clocks that don't drift, ns.
const SLACK_NS: u64 = 200_000;

/// Joins in order of time: each is a moment's time on CUPTI's clock and on the run's.
#[derive(Default)]
pub struct Joins {
    kept: VecDeque<(u64, u64)>,
}

impl Joins {
    /// Adds a join. If CUPTI's clock was set since the last join, returns by how many ns.
    pub fn add(&mut self, foreign_ns: u64, time_ns: u64) -> Option<i64> {
        let before = self.kept.back().copied();
        if before.is_some_and(|(_, time)| time >= time_ns) {
            return None;
        }
        self.kept.push_back((foreign_ns, time_ns));
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
        let (foreign, time) = before?;
        let (moved, passed) = (foreign_ns.wrapping_sub(foreign) as i64, time_ns - time);
        let step = moved.wrapping_sub(passed as i64);
        let drift = SLACK_NS + passed / 1_000_000 * DRIFT_PPM;
        (step.unsigned_abs() > drift).then_some(step)
    }

    /// Converts a time of CUPTI's clock to the run's clock, [`LATEST_NS`] at most. Between two joins
    /// it interpolates. Before the first join and after the last, it uses the difference of the
    /// clocks at that join. Without any join it returns the time unchanged.
    pub fn ns(&self, foreign_ns: u64) -> u64 {
        self.converted(foreign_ns).min(LATEST_NS)
    }

    fn converted(&self, foreign_ns: u64) -> u64 {
        // Nearly all times are near the last joins, so the search begins at the end.
        let after = self.kept.iter().rev().take_while(|(foreign, _)| *foreign > foreign_ns).count();
        let at = self.kept.len() - after;
        let shift =
            |(foreign, time): (u64, u64)| time.wrapping_add(foreign_ns.wrapping_sub(foreign));
        let before = at.checked_sub(1).and_then(|at| self.kept.get(at)).copied();
        let next = self.kept.get(at).copied();
        match (before, next) {
            (None, None) => foreign_ns,
            (Some(one), None) | (None, Some(one)) => shift(one),
            (Some((f0, t0)), Some((f1, t1))) => {
                let (df, dt) = (f1.wrapping_sub(f0), t1.saturating_sub(t0));
                let drift = SLACK_NS + dt / 1_000_000 * DRIFT_PPM;
                if df == 0 || df.abs_diff(dt) > drift {
                    // The clock was set at an unknown time between the joins. The time is converted
                    // as if that had happened later, but the result is never beyond the next join.
                    return shift((f0, t0)).min(t1);
                }
                t0.wrapping_add(scaled(foreign_ns - f0, dt, df))
            }
        }
    }
}

/// Returns `part` · `dt` / `df`, rounded down. The two clocks run nearly alike, so only their small
/// difference is scaled, in 64 bits. A division of 128 bits would cost more than everything else
/// that is done for a record.
fn scaled(part: u64, dt: u64, df: u64) -> u64 {
    let narrow = |value: u64| i64::try_from(value).ok();
    let in_short = || {
        let (part, df) = (narrow(part)?, narrow(df)?);
        let apart = narrow(dt)?.checked_sub(df)?;
        let more = part.checked_mul(apart)?.checked_div_euclid(df)?;
        u64::try_from(part.checked_add(more)?).ok()
    };
    in_short().unwrap_or_else(|| (u128::from(part) * u128::from(dt) / u128::from(df)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_is_exact_for_any_distance_of_joins() {
        let wide = |part: u64, dt: u64, df: u64| {
            (u128::from(part) * u128::from(dt) / u128::from(df)) as u64
        };
        for df in [1, 3, 100_000_007, 1 << 40, u64::MAX / 4] {
            for dt in [df, df + 1, df - 1, df + df / 1000, df - df / 1000] {
                for part in [0, 1, df / 3, df / 2 + 1, df - 1] {
                    assert_eq!(scaled(part, dt, df), wide(part, dt, df), "{part} {dt} {df}");
                }
            }
        }
    }

    #[test]
    fn times_between_joins_are_interpolated() {
        let mut joins = Joins::default();
        assert_eq!(joins.ns(77), 77);
        assert_eq!(joins.add(1_000_000, 5_000_000), None);
        assert_eq!(joins.ns(900_000), 4_900_000);
        assert_eq!(joins.ns(1_000_300), 5_000_300);
        // From here on, CUPTI's clock loses 100 ns per millisecond.
        assert_eq!(joins.add(1_999_900, 6_000_000), None);
        assert_eq!(joins.ns(1_999_900), 6_000_000);
        assert_eq!(joins.ns(1_499_950), 5_500_000);
        assert_eq!(joins.ns(2_000_900), 6_001_000);
    }

    #[test]
    fn a_set_clock_is_noticed_and_does_not_change_earlier_times() {
        let mut joins = Joins::default();
        joins.add(1_000_000_000, 2_000_000_000);
        assert_eq!(joins.add(1_600_000_000, 2_100_000_000), Some(500_000_000));
        assert_eq!(joins.ns(1_050_000_000), 2_050_000_000);
        assert_eq!(joins.ns(1_550_000_000), 2_100_000_000);
        assert_eq!(joins.ns(1_600_000_500), 2_100_000_500);
        assert_eq!(joins.add(1_700_000_000, 2_200_000_000), None);
        // The clock was set back. For a time that occurred twice, the later join is used.
        assert_eq!(joins.add(1_300_000_000, 2_300_000_000), Some(-500_000_000));
        assert_eq!(joins.ns(1_300_000_100), 2_300_000_100);
    }

    #[test]
    fn a_join_that_is_older_than_the_last_is_ignored() {
        let mut joins = Joins::default();
        joins.add(10, 100);
        assert_eq!(joins.add(20, 90), None);
        assert_eq!(joins.ns(30), 120);
    }
}
