//! Computes the error of a thread's time at one stack if some of that time was assigned from waits
//! whose stack was not sampled.

/// Number of classes into which waits are divided by length. The first class is for rows in which
/// the collector added up several waits. The others are for single waits; each begins at a length
/// that is the square root of two times that of the class before.
pub(super) const LENGTHS: usize = 11;

/// The share of a stretch in the waits without a sample of its thread. If one stretch has too much,
/// other stretches of the thread have too little, so that the error of a sum is less than the sum
/// of the errors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UnsampledShare {
    /// The sum over lengths of W² p / n, ns²: the stretch has the share p of the time W of
    /// unsampled waits, according to n sampled waits.
    squares: f64,
    /// W p / √n for each length, ns.
    shares: [f64; LENGTHS],
}

/// A variance below this share of `squares` is only due to rounding, and counts as 0.
const ROUNDING: f64 = 1e-9;

impl UnsampledShare {
    /// Adds a share of the time of all unsampled waits of one length, according to `count` sampled
    /// waits.
    pub(super) fn take(&mut self, length: usize, whole_ns: u64, share: f64, count: u64) {
        let (whole, count) = (whole_ns as f64, count as f64);
        self.squares += whole * whole * share / count;
        self.shares[length] += whole * share / count.sqrt();
    }

    /// Adds the share of another stretch of the same thread.
    pub fn add(&mut self, other: &UnsampledShare) {
        self.squares += other.squares;
        self.shares.iter_mut().zip(other.shares).for_each(|(share, other)| *share += other);
    }

    /// Returns the variance, ns²: the sum over lengths of W² p (1 - p) / n.
    pub fn variance(&self) -> f64 {
        let left = self.squares - self.shares.iter().map(|share| share * share).sum::<f64>();
        if left > ROUNDING * self.squares { left } else { 0.0 }
    }
}
