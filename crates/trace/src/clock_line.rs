//! How one clock of a run relates to another, as a line.

/// Corrects the times of a clock: how much to add to them, and how that changes with time. The
/// default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockLine {
    /// The time at which `add_ns` applies, ns on the clock that is corrected.
    pub at_ns: i64,
    /// Nanoseconds to add to the clock's times at `at_ns`.
    pub add_ns: i64,
    /// How much more to add for each nanosecond since `at_ns`, in parts of 10^15: 1 ppm is
    /// 1,000,000,000.
    pub drift_e15: i64,
}

/// One in units of [`ClockLine::drift_e15`].
const ONE: i128 = 1_000_000_000_000_000;

impl ClockLine {
    /// Returns the correction at a time of the clock, ns.
    #[inline]
    pub fn add_at(self, time_ns: i64) -> i64 {
        if self.drift_e15 == 0 {
            return self.add_ns;
        }
        let since_ns = i128::from(time_ns) - i128::from(self.at_ns);
        let drifted = since_ns * i128::from(self.drift_e15) / ONE;
        self.add_ns.saturating_add(i64::try_from(drifted).unwrap_or_default())
    }

    /// Returns the corrected time.
    #[inline]
    pub fn corrected(self, time_ns: i64) -> i64 {
        time_ns.saturating_add(self.add_at(time_ns))
    }

    /// Returns the time of the clock whose corrected time this is, to the nearest nanosecond or
    /// two.
    pub fn uncorrected(self, corrected_ns: i64) -> i64 {
        // The line is so close to level that the second guess is exact.
        let guess = corrected_ns.saturating_sub(self.add_at(corrected_ns));
        corrected_ns.saturating_sub(self.add_at(guess))
    }

    /// The drift in parts per million: how much faster the reference runs than this clock.
    pub fn drift_ppm(self) -> f64 {
        self.drift_e15 as f64 / 1e9
    }

    /// Returns the line from this clock to a third, given the line from this line's target to it.
    pub fn then(self, next: ClockLine) -> ClockLine {
        let add_ns =
            self.add_ns.saturating_add(next.add_at(self.at_ns.saturating_add(self.add_ns)));
        // The product of two drifts is below a part in ten million of either.
        let drift_e15 = self.drift_e15.saturating_add(next.drift_e15);
        ClockLine { at_ns: self.at_ns, add_ns, drift_e15 }
    }

    /// Returns the line in the other direction.
    pub fn reversed(self) -> ClockLine {
        let at_ns = self.at_ns.saturating_add(self.add_ns);
        ClockLine { at_ns, add_ns: self.add_ns.saturating_neg(), drift_e15: -self.drift_e15 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: i64 = 3_600_000_000_000;
    const LINE: ClockLine =
        ClockLine { at_ns: 1_000, add_ns: -5_000_000, drift_e15: 20_000_000_000 };

    #[test]
    fn a_drift_of_20_ppm_is_72_milliseconds_in_an_hour() {
        assert_eq!(LINE.add_at(1_000), -5_000_000);
        assert_eq!(LINE.add_at(1_000 + HOUR_NS), -5_000_000 + 72_000_000);
        assert_eq!(LINE.drift_ppm(), 20.0);
        assert_eq!(ClockLine::default().corrected(77), 77);
    }

    #[test]
    fn a_line_and_its_reverse_cancel_out() {
        for time_ns in [0, 1_000, HOUR_NS, 24 * HOUR_NS] {
            let there = LINE.corrected(time_ns);
            assert!((LINE.uncorrected(there) - time_ns).abs() <= 2, "{time_ns}");
            let back = LINE.reversed().corrected(there);
            // The product of the drifts is left: 4e-10 of the time.
            assert!((back - time_ns).abs() as f64 <= 2.0 + 4.1e-10 * time_ns as f64, "{time_ns}");
            let through = LINE.then(LINE).corrected(time_ns);
            let twice = LINE.corrected(there);
            assert!((through - twice).abs() as f64 <= 2.0 + 4.1e-10 * time_ns as f64, "{time_ns}");
        }
    }
}
