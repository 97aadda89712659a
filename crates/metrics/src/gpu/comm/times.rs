//! Sums up the times of operations between ranks.

/// Times of the operations with one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Number of operations.
    pub calls: u64,
    /// Sum of the operations' durations, ns.
    pub sum_ns: u64,
    /// The shortest time, ns.
    pub min_ns: u64,
    /// The longest time, ns.
    pub max_ns: u64,
}

impl Times {
    /// Returns the times of a single operation.
    pub fn one(time_ns: u64) -> Times {
        Times { calls: 1, sum_ns: time_ns, min_ns: time_ns, max_ns: time_ns }
    }

    /// Adds the times of other operations with the same key.
    pub fn add(&mut self, other: &Times) {
        self.calls += other.calls;
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}
