//! Converts CUPTI's times to the run's.
//!
//! NVIDIA says of PM sampling that it converts a device's times as the activity interface does
//! (quoted in <https://github.com/pytorch/kineto/pull/1526>), so its samples have the clock of
//! `cuptiGetTimestamp`. Neither the header nor the documentation says it. So a batch whose samples
//! end after they were read, or begin before the reading before last, is refused.

use super::cupti::Cupti;
use tprof_os::sys;

/// A reading of both clocks at one instant, ns.
#[derive(Clone, Copy, Debug)]
struct ClockPair {
    own_ns: u64,
    cupti_ns: u64,
}

/// CUPTI's clock, as far as it was read.
pub struct CuptiClock {
    earlier: ClockPair,
    later: ClockPair,
    width_ns: u64,
}

/// Attempts for one reading; the one counts that took the least time.
const TRIES: u32 = 5;

fn read(cupti: &Cupti) -> Result<(u64, ClockPair), String> {
    let mut best: Option<(u64, ClockPair)> = None;
    for _ in 0..TRIES {
        let before = sys::monotonic_ns();
        let cupti_ns = cupti.timestamp()?;
        let width = sys::monotonic_ns() - before;
        if best.as_ref().is_none_or(|best| width < best.0) {
            best = Some((width, ClockPair { own_ns: before + width / 2, cupti_ns }));
        }
    }
    best.ok_or_else(|| "CUPTI's clock was not read".to_owned())
}

impl CuptiClock {
    /// Reads the clock for the first time.
    pub fn begin(cupti: &Cupti) -> Result<CuptiClock, String> {
        let (width_ns, pair) = read(cupti)?;
        Ok(CuptiClock { earlier: pair, later: pair, width_ns })
    }

    /// Reads the clock again. Returns the longest time that a reading has taken, ns.
    pub fn read(&mut self, cupti: &Cupti) -> Result<u64, String> {
        let (width_ns, pair) = read(cupti)?;
        self.earlier = self.later;
        self.later = pair;
        self.width_ns = self.width_ns.max(width_ns);
        Ok(self.width_ns)
    }

    /// Converts a time by the last two readings; `None` if it can't be of this clock.
    pub fn own_ns(&self, cupti_ns: u64) -> Option<u64> {
        /// Readings are 100 ms apart; a device may hold samples back for longer.
        const OLDEST_NS: u64 = 60_000_000_000;
        /// No time is later than the last reading, but for its width.
        const LATEST_NS: u64 = 1_000_000;
        let (a, b) = (self.earlier, self.later);
        let since = i128::from(cupti_ns) - i128::from(a.cupti_ns);
        let (own, theirs) =
            (i128::from(b.own_ns - a.own_ns), i128::from(b.cupti_ns) - i128::from(a.cupti_ns));
        // Readings that are close together don't tell the rate.
        let since_own = match own > 1_000_000 {
            // Somebody has set the clock between the readings, and when isn't known.
            true if (theirs - own).abs() > own / 100 => return None,
            true => since * own / theirs,
            false => since,
        };
        let time = u64::try_from(i128::from(a.own_ns) + since_own).ok()?;
        let is_possible = time <= b.own_ns + LATEST_NS && time + OLDEST_NS >= a.own_ns;
        is_possible.then_some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_converted_by_both_readings_unless_the_clock_was_set() {
        let pair = |own_ms: u64, cupti_ms: u64| ClockPair {
            own_ns: own_ms * 1_000_000,
            cupti_ns: cupti_ms * 1_000_000,
        };
        let clock = CuptiClock { earlier: pair(1000, 5000), later: pair(2000, 6010), width_ns: 0 };
        assert_eq!(clock.own_ns(5_505_000_000), Some(1_500_000_000));
        assert_eq!(clock.own_ns(6_010_000_000), Some(2_000_000_000));
        assert_eq!(clock.own_ns(4_495_000_000), Some(500_000_000));
        assert_eq!(clock.own_ns(6_200_000_000), None);
        assert_eq!(clock.own_ns(17), None);
        let set = CuptiClock { later: pair(2000, 7000), ..clock };
        assert_eq!(set.own_ns(5_500_000_000), None);
    }
}
