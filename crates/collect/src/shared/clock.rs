//! Converts the clock of targets (TSC ticks) to CLOCK_MONOTONIC.
//!
//! Both clocks are read together whenever the engine flushes, several times a second, which is
//! called a join. The conversion is continuous: after a join, its slope is chosen so that the error
//! seen at the join would be gone a second later. A reading from before the last join is converted
//! as it was before the join, because it may be compared with readings that were converted then.
//!
//! Under strict seccomp, or if the TSC is disabled (`PR_SET_TSC`), a process can't read the clock.
//! It uses the time of the collector's last pass instead, which is some milliseconds old. The
//! clocks of different hosts are compared by the wall-clock time at which each run began, so they
//! agree only as well as NTP synchronizes them.

use std::collections::VecDeque;
use tprof_os::sys;

/// If the conversion is off by more than this at a join, one of the clocks jumped, ns. Drift can't
/// explain that, even if the join is late: after the first milliseconds the rates agree to some
/// parts in a thousand.
const JUMP_NS: u64 = 1_000_000_000;

/// The latest time that a reading is converted to, 146 years after the machine started. A target
/// may write any reading, and a time plus a duration and a margin must not overflow.
pub const LATEST_NS: u64 = 1 << 62;

/// Number of earlier lines that are kept. A reading from before the oldest of them is converted
/// with that line, which is less exact.
const PAST_LINES: usize = 64;

/// Converts ticks to nanoseconds.
#[derive(Clone, Debug)]
pub struct Clock {
    is_tsc: bool,
    /// The conversion since the last join.
    line: Line,
    /// The conversions before the last join, newest first.
    past: VecDeque<Line>,
    first_ticks: u64,
    first_ns: u64,
}

/// A linear conversion that begins at a moment when both clocks were read.
#[derive(Clone, Copy, Debug)]
struct Line {
    ticks: u64,
    ns: u64,
    /// Nanoseconds per tick, times 2^32.
    slope: u64,
}

impl Line {
    fn began_after(&self, ticks: u64) -> bool {
        (ticks.wrapping_sub(self.ticks) as i64) < 0
    }

    #[inline(always)]
    fn ns(&self, ticks: u64) -> u64 {
        let delta = ticks.wrapping_sub(self.ticks);
        self.ns.wrapping_add(((u128::from(delta) * u128::from(self.slope)) >> 32) as u64)
    }

    /// Converts a reading from before the beginning of the line.
    fn ns_before(&self, ticks: u64) -> u64 {
        let delta = self.ticks.wrapping_sub(ticks);
        self.ns.wrapping_sub(((u128::from(delta) * u128::from(self.slope)) >> 32) as u64)
    }
}

/// Reads both clocks as nearly as possible at the same moment: the closest of a few tries.
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

/// Whether the TSC has the same rate on all cores and in all power states.
pub fn tsc_is_invariant() -> bool {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|l| l.starts_with("flags")).unwrap_or("");
    let has = |flag: &str| flags.split_whitespace().any(|f| f == flag);
    cfg!(target_arch = "x86_64") && has("constant_tsc") && has("nonstop_tsc")
}

impl Clock {
    /// Reads both clocks twice, two milliseconds apart, to get a first slope.
    pub fn new() -> Clock {
        let is_tsc = tsc_is_invariant();
        let (ticks, ns) = both();
        let line = Line { ticks, ns, slope: 1 << 32 };
        let past = VecDeque::new();
        let mut clock = Clock { is_tsc, line, past, first_ticks: ticks, first_ns: ns };
        if is_tsc {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let (later_ticks, later_ns) = both();
            clock.line.slope = slope(later_ns - ns, later_ticks - ticks);
        }
        clock
    }

    /// Whether targets use the TSC.
    pub fn is_tsc(&self) -> bool {
        self.is_tsc
    }

    /// Reads the targets' clock.
    pub fn now(&self) -> u64 {
        if self.is_tsc { sys::ticks() } else { sys::monotonic_ns() }
    }

    /// Converts a reading of the targets' clock to ns of CLOCK_MONOTONIC, [`LATEST_NS`] at most.
    #[inline(always)]
    pub fn ns(&self, ticks: u64) -> u64 {
        let ns = match self.is_tsc {
            false => ticks,
            true if self.line.began_after(ticks) => self.ns_before(ticks),
            true => self.line.ns(ticks),
        };
        ns.min(LATEST_NS)
    }

    /// Converts a reading from before the last join as it was converted then.
    #[inline(never)]
    fn ns_before(&self, ticks: u64) -> u64 {
        match self.past.iter().find(|line| !line.began_after(ticks)) {
            Some(line) => line.ns(ticks),
            None => self.past.back().unwrap_or(&self.line).ns_before(ticks),
        }
    }

    /// Converts a number of ticks to nanoseconds.
    pub fn duration_ns(&self, ticks: u64) -> u64 {
        if self.is_tsc {
            ((u128::from(ticks) * u128::from(self.line.slope)) >> 32) as u64
        } else {
            ticks
        }
    }

    /// Converts nanoseconds to a number of ticks.
    pub fn ticks_in(&self, ns: u64) -> u64 {
        if self.is_tsc {
            ((u128::from(ns) << 32) / u128::from(self.line.slope.max(1))) as u64
        } else {
            ns
        }
    }

    /// Joins the clocks again. The engine calls this several times a second.
    pub fn join(&mut self) {
        if !self.is_tsc {
            return;
        }
        let (ticks, ns) = both();
        self.join_at(ticks, ns);
    }

    /// Applies a join: readings of both clocks at one moment.
    fn join_at(&mut self, ticks: u64, ns: u64) {
        let went_back = self.line.began_after(ticks);
        let shown = self.ns(ticks);
        // One of the clocks jumped, because the machine was suspended. Earlier readings don't tell
        // the relation of the clocks from now on, so the conversion begins anew.
        if went_back || shown.abs_diff(ns) > JUMP_NS {
            (self.line.ticks, self.line.ns) = (ticks, ns);
            self.past.clear();
            (self.first_ticks, self.first_ns) = (ticks, ns);
            return;
        }
        if ns <= self.first_ns + 1_000_000 || ticks <= self.line.ticks {
            return;
        }
        // The slope over the whole run is exact to nanoseconds per second. The new line corrects
        // the present error over the next second.
        let long_run = slope(ns - self.first_ns, ticks - self.first_ticks);
        let error = i128::from(ns) - i128::from(shown);
        let corrected = i128::from(long_run) + i128::from(long_run) * error / 1_000_000_000;
        self.past.truncate(PAST_LINES - 1);
        self.past.push_front(self.line);
        let slope = corrected.clamp(1, i128::from(u64::MAX)) as u64;
        self.line = Line { ticks, ns: shown, slope };
    }
}

fn slope(ns: u64, ticks: u64) -> u64 {
    ((u128::from(ns) << 32) / u128::from(ticks.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a clock with 3 ticks per ns, ten seconds after its first reading.
    fn settled() -> Clock {
        const SLOPE: u64 = (1 << 32) / 3;
        let (ticks, ns) = (3_000_000_000, 5_000_000_000);
        let (first_ticks, first_ns) = (ticks, ns);
        let line = Line { ticks, ns, slope: SLOPE };
        let mut clock = Clock { is_tsc: true, line, past: VecDeque::new(), first_ticks, first_ns };
        for second in 1..=10u64 {
            clock.join_at(ticks + second * 3_000_000_000, ns + second * 1_000_000_000);
        }
        clock
    }

    #[test]
    fn times_after_a_suspension_of_the_machine_are_correct() {
        let end = (33_000_000_000u64, 15_000_000_000u64);
        // Either clock ran for an hour without the other, or the ticks began again from 0.
        let hour = 3_600_000_000_000;
        for (ticks, ns) in [(end.0 + 3 * hour, end.1), (end.0, end.1 + hour), (7, end.1)] {
            let mut clock = settled();
            clock.join_at(ticks, ns);
            for later in 1..=5u64 {
                let (ticks, ns) = (ticks + later * 3_000_000_000, ns + later * 1_000_000_000);
                let off = clock.ns(ticks).abs_diff(ns);
                assert!(off < 100, "{off} ns off after {later} s from {ticks}, {ns}");
                clock.join_at(ticks, ns);
            }
        }
    }

    #[test]
    fn no_reading_has_a_time_that_overflows() {
        let monotonic = Clock { is_tsc: false, ..settled() };
        for ticks in [0, 1, 1 << 61, 1 << 62, 1 << 63, u64::MAX - 1, u64::MAX] {
            for clock in [&settled(), &monotonic] {
                assert!(clock.ns(ticks) <= LATEST_NS, "{ticks}");
            }
        }
    }

    #[test]
    fn later_joins_do_not_change_the_time_of_a_reading() {
        let mut clock = settled();
        // The reading is taken two seconds after the last join. Later joins find CLOCK_MONOTONIC
        // ahead of the conversion.
        let reading = 33_000_000_000 + 6_000_000_000;
        let then = clock.ns(reading);
        for second in 3..20u64 {
            let late_ns = second * 1_000_000_000 + second * 20_000;
            clock.join_at(33_000_000_000 + second * 3_000_000_000, 15_000_000_000 + late_ns);
            assert_eq!(clock.ns(reading), then, "after {second} s");
        }
    }

    #[test]
    fn times_after_a_standstill_of_the_collector_are_correct() {
        let mut clock = settled();
        let (ticks, ns) = (33_000_000_000 + 3 * 100_000_000_000, 15_000_000_000 + 100_000_000_000);
        clock.join_at(ticks, ns);
        assert!(clock.ns(ticks).abs_diff(ns) < 100_000);
        assert!(clock.ns(ticks + 3_000_000_000).abs_diff(ns + 1_000_000_000) < 100_000);
    }

    #[test]
    fn converted_times_stay_close_and_never_step_back() {
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
