//! Joins the targets' clock (TSC ticks) to CLOCK_MONOTONIC.
//!
//! Both are read again about once a second; the conversion is continuous, and
//! its slope is set so that the error seen is gone one interval later.

use crate::sys;

/// Ticks to nanoseconds.
#[derive(Clone, Debug)]
pub struct Clock {
    is_tsc: bool,
    ticks: u64,
    ns: u64,
    /// Nanoseconds per tick, times 2^32.
    slope: u64,
    first_ticks: u64,
    first_ns: u64,
}

/// Both clocks at one moment, as nearly as can be had: the closest of a few tries.
fn both() -> (u64, u64) {
    let mut best = (0, 0);
    let mut width = u64::MAX;
    for _ in 0..8 {
        let before = sys::ticks();
        let ns = sys::monotonic_ns();
        let after = sys::ticks();
        if after.wrapping_sub(before) < width {
            width = after.wrapping_sub(before);
            best = (before + width / 2, ns);
        }
    }
    best
}

/// Whether the TSC runs at one rate on all cores, in all power states.
pub fn tsc_is_invariant() -> bool {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|l| l.starts_with("flags")).unwrap_or("");
    let has = |flag: &str| flags.split_whitespace().any(|f| f == flag);
    cfg!(target_arch = "x86_64") && has("constant_tsc") && has("nonstop_tsc")
}

impl Clock {
    /// Reads both clocks over two milliseconds for a first slope.
    pub fn new() -> Clock {
        let is_tsc = tsc_is_invariant();
        let (ticks, ns) = both();
        let mut clock =
            Clock { is_tsc, ticks, ns, slope: 1 << 32, first_ticks: ticks, first_ns: ns };
        if is_tsc {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let (later_ticks, later_ns) = both();
            clock.slope = slope(later_ns - ns, later_ticks - ticks);
        }
        clock
    }

    /// Whether targets stamp with the TSC.
    pub fn is_tsc(&self) -> bool {
        self.is_tsc
    }

    /// The clock that targets read, now.
    pub fn now(&self) -> u64 {
        if self.is_tsc { sys::ticks() } else { sys::monotonic_ns() }
    }

    /// Nanoseconds of CLOCK_MONOTONIC for a reading.
    #[inline(always)]
    pub fn ns(&self, ticks: u64) -> u64 {
        if !self.is_tsc {
            return ticks;
        }
        let delta = ticks.wrapping_sub(self.ticks);
        if (delta as i64) < 0 {
            return self.ns_before(ticks);
        }
        self.ns.wrapping_add(((u128::from(delta) * u128::from(self.slope)) >> 32) as u64)
    }

    /// A reading from before the last join.
    #[inline(never)]
    fn ns_before(&self, ticks: u64) -> u64 {
        let delta = self.ticks.wrapping_sub(ticks);
        self.ns.wrapping_sub(((u128::from(delta) * u128::from(self.slope)) >> 32) as u64)
    }

    /// Nanoseconds for a number of ticks.
    pub fn duration_ns(&self, ticks: u64) -> u64 {
        if self.is_tsc {
            ((u128::from(ticks) * u128::from(self.slope)) >> 32) as u64
        } else {
            ticks
        }
    }

    /// Ticks for a number of nanoseconds.
    pub fn ticks_in(&self, ns: u64) -> u64 {
        if self.is_tsc {
            ((u128::from(ns) << 32) / u128::from(self.slope.max(1))) as u64
        } else {
            ns
        }
    }

    /// Joins again; called about once a second.
    pub fn join(&mut self) {
        if !self.is_tsc {
            return;
        }
        let (ticks, ns) = both();
        if ns <= self.first_ns + 1_000_000 || ticks <= self.ticks {
            return;
        }
        let shown = self.ns(ticks);
        // The long-run slope is exact to nanoseconds over the whole run; the
        // difference between what was shown and the truth is spread over a second.
        let long_run = slope(ns - self.first_ns, ticks - self.first_ticks);
        let error = i128::from(ns) - i128::from(shown);
        let corrected = i128::from(long_run) + i128::from(long_run) * error / 1_000_000_000;
        self.ticks = ticks;
        self.ns = shown;
        self.slope = corrected.clamp(1, i128::from(u64::MAX)) as u64;
    }
}

fn slope(ns: u64, ticks: u64) -> u64 {
    ((u128::from(ns) << 32) / u128::from(ticks.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_stays_close_and_never_steps_back() {
        let mut clock = Clock::new();
        let mut last = 0;
        for round in 0..200 {
            let ticks = clock.now();
            let ns = clock.ns(ticks);
            let truth = sys::monotonic_ns();
            assert!(ns >= last, "round {round}");
            assert!(truth.abs_diff(ns) < 2_000_000, "{} ns off", truth.abs_diff(ns));
            last = ns;
            if round % 20 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
                clock.join();
            }
        }
    }
}
