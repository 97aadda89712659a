//! Stores each metric of a rank over the whole run in bounded memory. The run is divided into a
//! fixed number of stretches of time, and each stretch has the largest of its values. When the run
//! becomes longer than all stretches together, each stretch becomes twice as long.

/// Number of stretches per metric.
pub const STRETCHES: usize = 600;
/// Initial length of a stretch.
pub const LEAST_NS: u64 = 1_000_000_000;

/// Length of a stretch, the same for all ranks of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Length of a stretch, a power of two times [`LEAST_NS`].
    pub width_ns: u64,
}

impl Default for Scale {
    fn default() -> Scale {
        Scale { width_ns: LEAST_NS }
    }
}

impl Scale {
    /// Returns the index of the stretch that holds a moment, if there is one.
    pub fn place(self, time_ns: u64) -> Option<usize> {
        Some((time_ns / self.width_ns) as usize).filter(|at| *at < STRETCHES)
    }
}

/// History of each metric of one rank, by metric index.
#[derive(Clone, Debug, Default)]
pub struct MetricCourses {
    all: Vec<Option<Box<[f32; STRETCHES]>>>,
    /// Values that came after the end of the last stretch: metric, time and value.
    waiting: Vec<(usize, u64, f32)>,
}

impl MetricCourses {
    /// Adds a value. It is stored as an `f32`, which has seven digits.
    pub fn add(&mut self, scale: Scale, metric: usize, time_ns: u64, value: f64) {
        match scale.place(time_ns) {
            Some(at) => self.put(metric, at, value as f32),
            None => self.waiting.push((metric, time_ns, value as f32)),
        }
    }

    fn put(&mut self, metric: usize, at: usize, value: f32) {
        if self.all.len() <= metric {
            self.all.resize(metric + 1, None);
        }
        let course = self.all[metric].get_or_insert_with(|| Box::new([f32::NAN; STRETCHES]));
        // An empty stretch is NaN, and `max` of a number and NaN is the number.
        course[at] = course[at].max(value);
    }

    /// Returns the latest moment after the end of the last stretch that has a pending value.
    pub fn overflow_ns(&self) -> Option<u64> {
        self.waiting.iter().map(|(_, time_ns, _)| *time_ns).max()
    }

    /// Doubles the length of the stretches.
    pub fn widen(&mut self) {
        for course in self.all.iter_mut().flatten() {
            for at in 0..STRETCHES / 2 {
                course[at] = course[2 * at].max(course[2 * at + 1]);
            }
            course[STRETCHES / 2..].fill(f32::NAN);
        }
    }

    /// Moves pending values into their stretches, and drops values that still have none.
    pub fn settle(&mut self, scale: Scale) {
        for (metric, time_ns, value) in std::mem::take(&mut self.waiting) {
            if let Some(at) = scale.place(time_ns) {
                self.put(metric, at, value);
            }
        }
    }

    /// Returns the history of a metric.
    pub fn of(&self, metric: usize) -> Option<&[f32; STRETCHES]> {
        self.all.get(metric)?.as_deref()
    }
}

/// Returns the `f64` that prints like the stored value; `None` if the value is unknown.
pub fn to_f64(value: f32) -> Option<f64> {
    value.is_finite().then(|| value.to_string().parse().unwrap_or(f64::from(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_of_a_longer_run_keep_their_largest_values() {
        let (mut courses, mut scale) = (MetricCourses::default(), Scale::default());
        courses.add(scale, 0, 0, 3.0);
        courses.add(scale, 0, LEAST_NS, 7.0);
        courses.add(scale, 0, 5 * LEAST_NS, 1.0);
        courses.add(scale, 0, 700 * LEAST_NS, 9.0);
        assert_eq!(courses.overflow_ns(), Some(700 * LEAST_NS));
        courses.widen();
        scale.width_ns *= 2;
        courses.settle(scale);
        let of = courses.of(0).unwrap();
        assert_eq!((of[0], of[2], of[350]), (7.0, 1.0, 9.0));
        assert!(of[1].is_nan() && courses.of(1).is_none() && courses.overflow_ns().is_none());
    }
}
