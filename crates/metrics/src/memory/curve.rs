//! Keeps a quantity over time in a limited number of buckets, each with the maximum in its time.
//!
//! A value holds until the next one, so a bucket without an event has the last value before it. If
//! a value comes after the last bucket's end, pairs of neighbouring buckets are merged and all
//! buckets become twice as long. So the end need not be known in advance.

/// The largest number of buckets in a curve.
pub const BUCKETS: usize = 200;

/// The position and the length of the buckets in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Start of the first bucket.
    pub start_ns: u64,
    /// Length of each bucket, ns.
    pub bucket_ns: u64,
}

impl Axis {
    /// Makes an axis whose buckets cover `start_ns..=end_ns`.
    pub fn over(start_ns: u64, end_ns: u64) -> Axis {
        let span = end_ns.saturating_sub(start_ns).saturating_add(1);
        Axis { start_ns, bucket_ns: span.div_ceil(BUCKETS as u64).max(1) }
    }
}

/// A quantity over time.
#[derive(Clone, Debug)]
pub struct Curve {
    axis: Axis,
    buckets: Vec<Option<u64>>,
    last: Option<u64>,
    bucket_end: u64,
}

impl Curve {
    /// Makes an empty curve.
    pub fn new(axis: Axis) -> Curve {
        Curve { axis, buckets: Vec::new(), last: None, bucket_end: axis.start_ns }
    }

    /// Sets the quantity to `value` from `time_ns` on; times must not decrease.
    #[inline]
    pub fn set(&mut self, time_ns: u64, value: u64) {
        if time_ns >= self.bucket_end {
            self.reach(time_ns);
        }
        if let Some(bucket) = self.buckets.last_mut() {
            *bucket = Some(bucket.map_or(value, |held| held.max(value)));
        }
        self.last = Some(value);
    }

    /// Raises the bucket of an earlier time to at least `value`.
    pub fn raise(&mut self, time_ns: u64, value: u64) {
        let offset = time_ns.saturating_sub(self.axis.start_ns);
        let index = (offset / self.axis.bucket_ns) as usize;
        if let Some(bucket) = self.buckets.get_mut(index) {
            *bucket = Some(bucket.map_or(value, |held| held.max(value)));
        }
    }

    /// Carries the last value up to `end_ns`, inclusive.
    pub fn extend_to(&mut self, end_ns: u64) {
        if end_ns >= self.bucket_end && self.last.is_some() {
            self.reach(end_ns);
        }
    }

    /// Returns the axis, whose buckets may have grown since the curve was made.
    pub fn axis(&self) -> Axis {
        self.axis
    }

    /// Returns the buckets; those before the first value are `None`.
    pub fn buckets(self) -> Vec<Option<u64>> {
        self.buckets
    }

    #[cold]
    fn reach(&mut self, time_ns: u64) {
        let offset = time_ns.saturating_sub(self.axis.start_ns);
        while offset / self.axis.bucket_ns >= BUCKETS as u64 {
            self.axis.bucket_ns = self.axis.bucket_ns.saturating_mul(2);
            let halves = self.buckets.chunks(2).map(|pair| pair.iter().copied().flatten().max());
            self.buckets = halves.collect();
        }
        let index = (offset / self.axis.bucket_ns) as usize;
        self.buckets.resize((index + 1).max(self.buckets.len()), self.last);
        let end = self.axis.bucket_ns.saturating_mul(index as u64 + 1);
        self.bucket_end = self.axis.start_ns.saturating_add(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_keeps_its_maximum_and_quiet_ones_the_last_value() {
        let mut curve = Curve::new(Axis { start_ns: 100, bucket_ns: 10 });
        curve.set(112, 5);
        curve.set(113, 9);
        curve.set(119, 2);
        curve.set(141, 1);
        curve.extend_to(155);
        let expected = [None, Some(9), Some(2), Some(2), Some(2), Some(1)];
        assert_eq!(curve.buckets(), expected);
    }

    #[test]
    fn buckets_grow_if_time_passes_the_expected_end() {
        let mut curve = Curve::new(Axis::over(0, 199));
        assert_eq!(curve.axis().bucket_ns, 1);
        for time in 0..1000 {
            curve.set(time, 1000 - time);
        }
        assert_eq!(curve.axis().bucket_ns, 8);
        let buckets = curve.buckets();
        assert_eq!((buckets.len(), buckets[0], buckets[1]), (125, Some(1000), Some(993)));
    }

    #[test]
    fn times_at_the_limits_of_the_clock_are_accepted() {
        let mut curve = Curve::new(Axis::over(50, 60));
        curve.set(0, 1);
        curve.set(u64::MAX, 2);
        assert!(curve.buckets().len() <= BUCKETS);
    }
}
