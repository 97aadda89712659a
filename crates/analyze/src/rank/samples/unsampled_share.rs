//! What a time has of waits whose place was not sampled, and how uncertain that is.

/// Lengths: of waits that were added up, and of the others in steps of the square root of two.
pub(super) const LENGTHS: usize = 11;

/// What a time has of its thread's waits without a sample, for its error: other times of the thread
/// lack what it has too much, so that errors of a sum are less than the sum of theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UnsampledShare {
    /// Of each length, W² p / n for a share p of the time W, by n sampled waits, ns²; added up.
    squares: f64,
    /// W p / √n of each, ns.
    shares: [f64; LENGTHS],
}

/// Less of what is added up is the rounding of it.
const ROUNDING: f64 = 1e-9;

impl UnsampledShare {
    /// Takes a share of the time of all waits of a length, which so many sampled ones show.
    pub(super) fn take(&mut self, length: usize, whole_ns: u64, share: f64, count: u64) {
        let (whole, count) = (whole_ns as f64, count as f64);
        self.squares += whole * whole * share / count;
        self.shares[length] += whole * share / count.sqrt();
    }

    /// Adds that of another time of the same thread.
    pub fn add(&mut self, other: &UnsampledShare) {
        self.squares += other.squares;
        self.shares.iter_mut().zip(other.shares).for_each(|(share, other)| *share += other);
    }

    /// Its variance, ns²: of each length W² p (1 - p) / n.
    pub fn variance(&self) -> f64 {
        let left = self.squares - self.shares.iter().map(|share| share * share).sum::<f64>();
        if left > ROUNDING * self.squares { left } else { 0.0 }
    }
}
