//! Converts CUPTI's times to the run's.
//!
//! NVIDIA says of PM sampling that it converts a device's times as the activity interface does
//! (quoted in <https://github.com/pytorch/kineto/pull/1526>), so its samples have the clock of
//! `cuptiGetTimestamp`. Neither the header nor the documentation says it. So a
//! sample that ends after it was read, or that is a minute old, is refused.

use super::cupti::Cupti;
use std::collections::VecDeque;
use tprof_os::sys;

/// A reading of both clocks at one instant, ns.
#[derive(Clone, Copy, Debug)]
struct ClockPair {
    own_ns: u64,
    cupti_ns: u64,
}

/// CUPTI's clock, as far as it was read.
pub struct CuptiClock {
    /// Readings, at least [`APART_NS`] apart: from two that are closer, the rate is not known.
    pairs: VecDeque<ClockPair>,
    /// Time of the last reading, ns.
    read_ns: u64,
    width_ns: u64,
}

/// Attempts for one reading; the one counts that took the least time.
const TRIES: u32 = 5;
/// Least time between two readings that are kept, ns.
const APART_NS: u64 = 50_000_000;
/// Number of readings that are kept: of some seconds, for samples that come late.
const KEPT: usize = 64;
/// No sample ends later than the last reading of the clock, but for its width, ns.
const LATEST_NS: u64 = 1_000_000;
/// A sample is not older than this, ns.
const OLDEST_NS: u64 = 60_000_000_000;

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
        Ok(CuptiClock { pairs: [pair].into(), read_ns: pair.own_ns, width_ns })
    }

    /// Reads the clock again. Returns the longest time that a reading has taken, ns.
    pub fn read(&mut self, cupti: &Cupti) -> Result<u64, String> {
        let (width_ns, pair) = read(cupti)?;
        self.width_ns = self.width_ns.max(width_ns);
        self.add(pair);
        Ok(self.width_ns)
    }

    fn add(&mut self, pair: ClockPair) {
        self.read_ns = pair.own_ns;
        let last = self.pairs.back();
        if last.is_none_or(|last| pair.own_ns >= last.own_ns + APART_NS) {
            if self.pairs.len() == KEPT {
                self.pairs.pop_front();
            }
            self.pairs.push_back(pair);
        }
    }

    /// Converts a time by the readings before and after it; `None` if it can't be of this clock.
    pub fn own_ns(&self, cupti_ns: u64) -> Option<u64> {
        let later = self.pairs.partition_point(|pair| pair.cupti_ns <= cupti_ns);
        let at = later.clamp(1, self.pairs.len().max(2) - 1);
        let a = self.pairs.get(at - 1)?;
        let since = i128::from(cupti_ns) - i128::from(a.cupti_ns);
        let since_own = match self.pairs.get(at) {
            Some(b) => {
                let own = i128::from(b.own_ns - a.own_ns);
                let theirs = i128::from(b.cupti_ns) - i128::from(a.cupti_ns);
                // Somebody has set the clock between the readings, and when isn't known.
                if (theirs - own).abs() > own / 100 {
                    return None;
                }
                since * own / theirs
            }
            None => since,
        };
        let time = u64::try_from(i128::from(a.own_ns) + since_own).ok()?;
        let is_possible = time <= self.read_ns + LATEST_NS && time + OLDEST_NS >= self.read_ns;
        is_possible.then_some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(pairs: &[(u64, u64)]) -> CuptiClock {
        let mut clock = CuptiClock { pairs: VecDeque::new(), read_ns: 0, width_ns: 0 };
        for (own_ms, cupti_ms) in pairs {
            clock.add(ClockPair { own_ns: own_ms * 1_000_000, cupti_ns: cupti_ms * 1_000_000 });
        }
        clock
    }

    #[test]
    fn times_are_converted_by_the_readings_around_them() {
        let ms = |clock: &CuptiClock, cupti_ms: u64| {
            clock.own_ns(cupti_ms * 1_000_000).map(|ns| ns / 1_000_000)
        };
        let one = clock(&[(1000, 5000)]);
        assert_eq!([ms(&one, 4900), ms(&one, 5100), ms(&one, 17)], [Some(900), None, None]);
        let three = clock(&[(1000, 5000), (2000, 6010), (3000, 7010)]);
        assert_eq!([5505, 6010, 6510].map(|at| ms(&three, at)), [1500, 2000, 2500].map(Some));
        assert_eq!(ms(&three, 4495), Some(500));
        assert_eq!([7000, 7200].map(|at| ms(&three, at)), [Some(2990), None]);
        // The second reading is too close for a rate.
        let close = clock(&[(1000, 5000), (1001, 5002), (1100, 5100)]);
        assert_eq!(ms(&close, 5050), Some(1050));
        // Somebody has set the clock after the second reading.
        let set = clock(&[(1000, 5000), (2000, 6000), (3000, 9000)]);
        assert_eq!([5500, 7500].map(|at| ms(&set, at)), [Some(1500), None]);
    }
}
