//! Counts values in histograms as TensorBoard stores them: numbers between limits.

use tprof_facts::histograms::ProgramHistogram;

/// Number of buckets between the lowest and the highest value.
const BUCKETS: usize = 30;
/// Ratio between neighbouring limits of histograms of durations.
const FACTOR: f64 = 1.1;
/// The first limit, in microseconds.
const FIRST_LIMIT: f64 = 1e-3;
/// Number of limits. The last one is more than a day.
const LIMITS: usize = 340;

/// Counts of values, and their sums.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Histogram {
    pub min: f64,
    pub max: f64,
    pub count: u64,
    pub sum: f64,
    pub sum_of_squares: f64,
    /// Upper limit and count of each bucket, in order; all counts add up to `count`.
    pub buckets: Vec<(f64, u64)>,
}

impl Histogram {
    /// Converts a histogram that the program itself counted; `None` if it contains no value.
    pub fn counted(of: &ProgramHistogram) -> Option<Histogram> {
        let (min, max) = (of.min?, of.max?);
        let width = (max - min) / of.counts.len() as f64;
        let bucket = |(at, count): (usize, &u64)| match at + 1 == of.counts.len() {
            true => (max, *count),
            false => (min + width * (at + 1) as f64, *count),
        };
        Some(Histogram {
            min,
            max,
            count: of.counts.iter().copied().fold(0, u64::saturating_add),
            sum: of.sum.unwrap_or(f64::NAN),
            sum_of_squares: of.squares.unwrap_or(f64::INFINITY),
            buckets: of.counts.iter().enumerate().map(bucket).collect(),
        })
    }

    /// Counts values in buckets of equal width; `None` if there is no value.
    pub fn of(values: &[f64]) -> Option<Histogram> {
        let mut made = ValueSums::default();
        values.iter().for_each(|value| made.add(*value));
        let width = (made.max - made.min) / BUCKETS as f64;
        let limit = |bucket: usize| match bucket + 1 == BUCKETS {
            true => made.max,
            false => made.min + width * (bucket + 1) as f64,
        };
        let mut counts = [0; BUCKETS];
        for value in values {
            let bucket = if width > 0.0 { ((value - made.min) / width) as usize } else { 0 };
            counts[bucket.min(BUCKETS - 1)] += 1;
        }
        let buckets = counts.iter().enumerate().map(|(at, count)| (limit(at), *count)).collect();
        made.with(match width > 0.0 {
            true => buckets,
            false => vec![(made.max, made.count)],
        })
    }
}

#[derive(Clone, Copy)]
struct ValueSums {
    min: f64,
    max: f64,
    count: u64,
    sum: f64,
    sum_of_squares: f64,
}

impl Default for ValueSums {
    fn default() -> ValueSums {
        let (min, max) = (f64::INFINITY, f64::NEG_INFINITY);
        ValueSums { min, max, count: 0, sum: 0.0, sum_of_squares: 0.0 }
    }
}

impl ValueSums {
    fn add(&mut self, value: f64) {
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.count += 1;
        self.sum += value;
        self.sum_of_squares += value * value;
    }

    fn with(self, buckets: Vec<(f64, u64)>) -> Option<Histogram> {
        let ValueSums { min, max, count, sum, sum_of_squares } = self;
        (count > 0).then_some(Histogram { min, max, count, sum, sum_of_squares, buckets })
    }
}

/// Counts durations one by one, in constant memory. Each limit is a tenth higher than the previous
/// one, as in TensorFlow's own histograms.
#[derive(Clone)]
pub(super) struct Durations {
    sums: ValueSums,
    counts: Vec<u64>,
}

impl Durations {
    pub fn new() -> Durations {
        Durations { sums: ValueSums::default(), counts: vec![0; LIMITS + 1] }
    }

    /// Adds a duration.
    pub fn add(&mut self, duration_ns: u64) {
        let micros = duration_ns as f64 / 1e3;
        self.sums.add(micros);
        // Find the first limit that is not below the value. Rounding may make this index wrong by
        // one in either direction.
        let at = ((micros / FIRST_LIMIT).ln() / FACTOR.ln()).ceil().clamp(0.0, LIMITS as f64);
        let mut at = at as usize;
        while at > 0 && micros <= limit(at - 1) {
            at -= 1;
        }
        while at < LIMITS && micros > limit(at) {
            at += 1;
        }
        self.counts[at] += 1;
    }

    /// Returns the histogram in microseconds, from the first bucket that is not empty to the last.
    pub fn histogram(self) -> Option<Histogram> {
        let holds = |count: &u64| *count > 0;
        let first = self.counts.iter().position(holds)?;
        let last = self.counts.iter().rposition(holds)?;
        let bucket = |at: usize| {
            let limit = if at == last { self.sums.max } else { limit(at) };
            (limit, self.counts[at])
        };
        self.sums.with((first..=last).map(bucket).collect())
    }
}

/// Returns the upper limit of a bucket in microseconds.
fn limit(bucket: usize) -> f64 {
    FIRST_LIMIT * FACTOR.powi(bucket as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_reach_from_the_lowest_to_the_highest_value() {
        let of = Histogram::of(&[10.0, 40.0, 11.5, 10.5]).unwrap();
        assert_eq!((of.min, of.max, of.count, of.sum), (10.0, 40.0, 4, 72.0));
        assert_eq!(of.buckets.len(), BUCKETS);
        assert_eq!(
            (of.buckets[0], of.buckets[1], of.buckets[29]),
            ((11.0, 2), (12.0, 1), (40.0, 1))
        );
        assert_eq!(Histogram::of(&[3.0, 3.0]).unwrap().buckets, [(3.0, 2)]);
        assert_eq!(Histogram::of(&[]), None);
        assert_eq!(Durations::new().histogram(), None);
    }

    proptest! {
        #[test]
        fn each_duration_is_in_the_bucket_of_its_limits(
            all in prop::collection::vec(0_u64..1 << 50, 1..50)
        ) {
            let mut made = Durations::new();
            all.iter().for_each(|ns| made.add(*ns));
            let of = made.histogram().unwrap();
            let micros: Vec<f64> = all.iter().map(|ns| *ns as f64 / 1e3).collect();
            let mut below = f64::NEG_INFINITY;
            for (limit, count) in &of.buckets {
                let within = micros.iter().filter(|v| below < **v && **v <= *limit).count();
                prop_assert_eq!(within as u64, *count, "{} to {}", below, limit);
                below = *limit;
            }
            prop_assert_eq!(of.count, all.len() as u64);
            prop_assert_eq!(below, of.max);
        }
    }
}
