//! Interpolates a process's totals (such as its number of recorded events), which were read only
//! from time to time.

use tprof_facts::cycles;
use tprof_rank::base::intervals::Cover;
use tprof_trace::TraceFile;
use tprof_trace::model::ProcessIndex;

/// The readings of a process's totals, in order of time. Between two readings, a total is taken to
/// rise evenly while recording is on.
pub(super) struct RisingTotals<R> {
    rows: Vec<(u64, R)>,
    paused: Vec<(u64, u64)>,
    start_ns: u64,
    /// Whether earlier readings were deleted, because only the last part of the run is kept.
    is_last_part: bool,
}

impl<R> RisingTotals<R> {
    /// Creates the totals of a process from these readings, which are in order.
    pub fn of(
        file: &TraceFile,
        process: ProcessIndex,
        rows: impl Iterator<Item = (u64, R)>,
    ) -> RisingTotals<R> {
        let start_ns = file.process(process).map_or(0, |process| process.start_ns);
        let is_last_part = file.kept_since_ns().is_some();
        RisingTotals { rows: rows.collect(), paused: cycles::paused(file), start_ns, is_last_part }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns by how much a total rose during these times.
    pub fn within(&self, times: &Cover, of: impl Fn(&R) -> u64) -> f64 {
        let rise = |at: u64| self.at(at, &of);
        times.parts().iter().map(|part| (rise(part.end) - rise(part.start)).max(0.0)).sum()
    }

    /// Returns a total at a time.
    fn at(&self, time_ns: u64, of: &impl Fn(&R) -> u64) -> f64 {
        let after = self.rows.partition_point(|(at, _)| *at <= time_ns);
        let before = after.checked_sub(1).and_then(|at| self.rows.get(at));
        if before.is_none() && self.is_last_part {
            return self.before_first(time_ns, of);
        }
        let (from_ns, from) = before.map_or((self.start_ns, 0), |(at, row)| (*at, of(row)));
        let Some((to_ns, to)) = self.rows.get(after).map(|(at, row)| (*at, of(row))) else {
            return from as f64;
        };
        let (whole, part) = (self.on_ns(from_ns, to_ns), self.on_ns(from_ns, time_ns));
        // If recording was off all the time but the total rose, it is taken to rise evenly over the
        // whole time.
        let (whole, part) = match whole {
            0 => (to_ns.saturating_sub(from_ns).max(1), time_ns.saturating_sub(from_ns)),
            _ => (whole, part),
        };
        let share = part as f64 / whole as f64;
        from as f64 + to.saturating_sub(from) as f64 * share
    }

    /// Returns a total at a time before the first reading, from which it is taken to rise as between
    /// the first two.
    fn before_first(&self, time_ns: u64, of: &impl Fn(&R) -> u64) -> f64 {
        let [first, second, ..] = &self.rows[..] else { return 0.0 };
        let rise = of(&second.1).saturating_sub(of(&first.1)) as f64;
        let rate = rise / self.on_ns(first.0, second.0).max(1) as f64;
        (of(&first.1) as f64 - rate * self.on_ns(time_ns, first.0) as f64).max(0.0)
    }

    /// Returns how long recording was on between two times.
    fn on_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let off = |(off, on): &(u64, u64)| (*on).min(to_ns).saturating_sub((*off).max(from_ns));
        let off: u64 = self.paused.iter().map(off).sum();
        to_ns.saturating_sub(from_ns).saturating_sub(off)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tprof_rank::base::intervals::Interval;

    use super::*;

    fn series(rows: &[(u64, u64)], paused: &[(u64, u64)]) -> RisingTotals<u64> {
        let (rows, paused) = (rows.to_vec(), paused.to_vec());
        RisingTotals { rows, paused, start_ns: 0, is_last_part: false }
    }

    #[test]
    fn a_total_rises_evenly_between_readings_while_recording_is_on() {
        let even = series(&[(100, 10), (200, 30)], &[]);
        let within = |of: &RisingTotals<u64>, from, to| {
            of.within(&Cover::of([Interval::new(from, to)]), |row| *row)
        };
        assert_eq!((within(&even, 0, 50), within(&even, 50, 150)), (5.0, 15.0));
        assert_eq!((within(&even, 150, 900), within(&even, 200, 900)), (10.0, 0.0));
        let paused = series(&[(100, 10), (200, 30)], &[(110, 190)]);
        assert_eq!((within(&paused, 100, 110), within(&paused, 110, 190)), (10.0, 0.0));
    }

    #[test]
    fn what_rose_before_the_part_that_is_kept_is_not_of_it() {
        let whole = series(&[(1000, 5000), (1100, 5010), (1200, 5040)], &[]);
        let kept = RisingTotals { is_last_part: true, ..whole };
        let within = |from, to| kept.within(&Cover::of([Interval::new(from, to)]), |row| *row);
        assert_eq!((within(950, 1000), within(950, 1150)), (5.0, 30.0));
        let one = RisingTotals { is_last_part: true, ..series(&[(1000, 5000)], &[]) };
        assert_eq!(one.within(&Cover::of([Interval::new(1000, 2000)]), |row| *row), 0.0);
    }

    proptest! {
        #[test]
        fn parts_of_a_time_add_up_to_it(
            rows in prop::collection::vec((1_u64..50, 0_u64..1000), 1..20),
            cuts in prop::collection::vec(0_u64..1200, 0..6),
            pause in (0_u64..1000, 0_u64..300),
        ) {
            let mut sums = (0, 0);
            let rows: Vec<(u64, u64)> = rows
                .into_iter()
                .map(|(after, more)| {
                    sums = (sums.0 + after, sums.1 + more);
                    sums
                })
                .collect();
            let of = series(&rows, &[(pause.0, pause.0 + pause.1)]);
            let mut cuts: Vec<u64> = cuts.into_iter().chain([0, 2000]).collect();
            cuts.sort_unstable();
            let parts = cuts.windows(2).map(|of| Interval::new(of[0], of[1]));
            let sum: f64 = parts.map(|part| of.within(&Cover::of([part]), |row| *row)).sum();
            prop_assert!((sum - sums.1 as f64).abs() < 1e-6 * (1.0 + sum), "{sum} {}", sums.1);
        }
    }
}
