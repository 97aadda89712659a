//! The share of a time in waits whose place was not sampled, with its uncertainty.

/// Lengths: of waits that were added up, and of the others in steps of the square root of two.
pub(super) const LENGTHS: usize = 11;

/// The share of a time in its thread's waits without a sample, for its error. Whatever it has too
/// much is missing from other times of the thread, so that errors of a sum are less than the sum of
/// the errors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UnsampledShare {
    /// Sum over lengths of W² p / n for a share p of the time W, by n sampled waits, ns².
    squares: f64,
    /// W p / √n of each, ns.
    shares: [f64; LENGTHS],
}

/// Below this share of the added squares, the variance is only rounding.
const ROUNDING: f64 = 1e-9;

impl UnsampledShare {
    /// Takes a share of the time of all waits of a length, which `count` sampled ones show.
    pub(super) fn take(&mut self, length: usize, whole_ns: u64, share: f64, count: u64) {
        let (whole, count) = (whole_ns as f64, count as f64);
        self.squares += whole * whole * share / count;
        self.shares[length] += whole * share / count.sqrt();
    }

    /// Adds the share of another time of the same thread.
    pub fn add(&mut self, other: &UnsampledShare) {
        self.squares += other.squares;
        self.shares.iter_mut().zip(other.shares).for_each(|(share, other)| *share += other);
    }

    /// The variance, ns²: for each length, W² p (1 - p) / n.
    pub fn variance(&self) -> f64 {
        let left = self.squares - self.shares.iter().map(|share| share * share).sum::<f64>();
        if left > ROUNDING * self.squares { left } else { 0.0 }
    }
}
