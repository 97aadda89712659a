//! Chooses the times at which live bytes are compared, and fits a straight line through the values.
//!
//! The times are steps if the job has them, otherwise marks, otherwise the middles of the run's
//! quarters. The first tenth of the points, at least one, is warm-up and not compared: caches fill
//! and pools grow at the beginning of every healthy job.

use tprof_facts::steps;
use tprof_trace::TraceFile;
use tprof_trace::model::MarkKind;

/// The kind of times at which live bytes are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MomentKind {
    /// Starts of training steps, and the end of the last one.
    Step,
    /// Marks that a person or a program set.
    Mark,
    /// Middles of the quarters of the run, if no steps or marks were recorded.
    Quarter,
}

impl MomentKind {
    /// The kind as one word.
    pub fn word(self) -> &'static str {
        match self {
            MomentKind::Step => "step",
            MomentKind::Mark => "mark",
            MomentKind::Quarter => "quarter",
        }
    }
}

/// The least number of steps or marks from which growth is computed.
pub(crate) const LEAST: usize = 3;

/// The times at which live bytes are compared.
#[derive(Clone, Debug)]
pub(crate) struct Points {
    pub kind: MomentKind,
    pub times: Vec<u64>,
    pub warm_up: usize,
}

impl Points {
    /// Chooses the best times that a file has within the life of its processes.
    pub fn choose(file: &TraceFile, (start_ns, end_ns): (u64, u64)) -> Points {
        let steps = steps::of_file(file, None).all;
        let end_ns_of_last = steps.iter().map(|step| step.end_ns).max();
        let steps: Vec<u64> =
            steps.iter().map(|step| step.start_ns).chain(end_ns_of_last).collect();
        let marks = file.marks().iter().filter(|mark| mark.kind == MarkKind::Mark);
        let marks: Vec<u64> = marks.map(|mark| mark.time_ns).collect();
        for (kind, mut times) in [(MomentKind::Step, steps), (MomentKind::Mark, marks)] {
            times.retain(|time_ns| (start_ns..=end_ns).contains(time_ns));
            times.sort_unstable();
            if times.len() >= LEAST {
                let warm_up = (times.len() / 10).max(1);
                return Points { kind, times, warm_up };
            }
        }
        let span = end_ns.saturating_sub(start_ns);
        let times = [1u64, 3, 5, 7].map(|eighths| start_ns + (span / 8).saturating_mul(eighths));
        Points { kind: MomentKind::Quarter, times: times.to_vec(), warm_up: 1 }
    }

    /// Number of points that are compared.
    pub fn compared(&self) -> usize {
        self.times.len() - self.warm_up.min(self.times.len())
    }

    /// Times of the first and the last point that are compared.
    pub fn span(&self) -> Option<(u64, u64)> {
        Some((*self.times.get(self.warm_up)?, *self.times.last()?))
    }

    /// The steepest possible slope, bytes per point, of a least-squares line through values between
    /// 0 and `most`. It is the slope through values whose first half is 0 and whose second half is
    /// `most`.
    pub fn steepest_slope(&self, most: u64) -> f64 {
        let n = self.compared() as f64;
        if n < 2.0 {
            0.0
        } else {
            most as f64 * (n / 2.0).floor() * (n / 2.0).ceil() * 6.0 / (n * (n * n - 1.0))
        }
    }
}

/// Live bytes at the points, as the sums that a least-squares line needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trend {
    /// Number of points that were added.
    pub reached: u32,
    /// Live bytes at the first point after warm-up.
    pub first: u64,
    /// Live bytes at the last point.
    pub last: u64,
    /// Variances of `first` and `last`; 0 if all allocations are recorded.
    pub variance: [f64; 2],
    sum_y: f64,
    sum_xy: f64,
}

impl Trend {
    /// The trend of a site that did not exist at the first `reached` points.
    pub fn empty_until(reached: u32) -> Trend {
        Trend { reached, ..Trend::default() }
    }

    /// Adds `value`, of this variance, for every point from the last call up to the `reached`th
    /// point.
    pub fn hold(&mut self, value: u64, variance: f64, reached: u32, points: &Points) {
        let warm_up = points.warm_up as u32;
        let last = (points.times.len() as u32).saturating_sub(1);
        let (from, to) = (self.reached.max(warm_up), reached);
        self.reached = reached;
        if from >= to {
            return;
        }
        if from == warm_up {
            (self.first, self.variance[0]) = (value, variance.max(0.0));
        }
        if to > last {
            (self.last, self.variance[1]) = (value, variance.max(0.0));
        }
        let (a, b) = (f64::from(from - warm_up), f64::from(to - warm_up));
        self.sum_y += value as f64 * (b - a);
        self.sum_xy += value as f64 * (b * (b - 1.0) - a * (a - 1.0)) / 2.0;
    }

    /// Adds another site's trend.
    pub fn add(&mut self, other: &Trend) {
        self.first = self.first.saturating_add(other.first);
        self.last = self.last.saturating_add(other.last);
        self.variance[0] += other.variance[0];
        self.variance[1] += other.variance[1];
        self.sum_y += other.sum_y;
        self.sum_xy += other.sum_xy;
    }

    /// Live bytes at the last point minus those at the first compared point.
    pub fn growth(&self) -> i64 {
        (i128::from(self.last) - i128::from(self.first)).clamp(i64::MIN.into(), i64::MAX.into())
            as i64
    }

    /// Slope of the least-squares line, bytes per point.
    pub fn slope(&self, points: &Points) -> f64 {
        let n = points.compared() as f64;
        if n < 2.0 {
            return 0.0;
        }
        let sum_x = n * (n - 1.0) / 2.0;
        let sum_xx = (n - 1.0) * n * (2.0 * n - 1.0) / 6.0;
        (n * self.sum_xy - sum_x * self.sum_y) / (n * sum_xx - sum_x * sum_x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(n: usize) -> Points {
        Points { kind: MomentKind::Step, times: (0..n as u64).collect(), warm_up: n / 10 }
    }

    #[test]
    fn the_slope_of_a_line_is_exact() {
        let points = steps(20);
        let mut trend = Trend::default();
        for i in 0..20u32 {
            trend.hold(1000 + 64 * u64::from(i), 0.0, i + 1, &points);
        }
        assert!((trend.slope(&points) - 64.0).abs() < 1e-9);
        assert_eq!(trend.growth(), 64 * 17);
    }

    #[test]
    fn a_jump_in_the_middle_has_the_steepest_slope() {
        for n in [2, 3, 4, 17, 18] {
            let points = steps(n);
            let compared = points.compared() as u32;
            let slope = |from: u32| {
                let mut trend = Trend::default();
                trend.hold(0, 0.0, points.warm_up as u32 + from, &points);
                trend.hold(1000, 0.0, n as u32, &points);
                trend.slope(&points)
            };
            let most = (0..=compared).map(slope).fold(0.0, f64::max);
            assert!((points.steepest_slope(1000) - most).abs() < 1e-9, "{n}: {most}");
        }
    }

    #[test]
    fn holding_over_many_points_equals_holding_at_each() {
        let points = steps(30);
        let (mut one, mut many) = (Trend::default(), Trend::default());
        for (value, reached) in [(5, 2), (7, 11), (3, 12), (90, 30)] {
            many.hold(value, 0.0, reached, &points);
            for r in one.reached + 1..=reached {
                one.hold(value, 0.0, r, &points);
            }
        }
        assert_eq!((one.first, one.last), (many.first, many.last));
        assert!((one.slope(&points) - many.slope(&points)).abs() < 1e-9);
    }
}
