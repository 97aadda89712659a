//! Computes with times of which only an estimate and a lower and an upper bound are known.

use std::ops::AddAssign;

use tprof_rank::base::reading::Reading;

/// A sum of times, with its lower and upper bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BoundedTime {
    /// The best estimate, ns.
    pub ns: u64,
    pub least_ns: u64,
    pub most_ns: u64,
}

impl BoundedTime {
    /// Returns how much of a wait falls into a piece of a stretch of time. The wait lasts
    /// `length_ns` in total and lies somewhere in the stretch, which lasts `somewhere_in_ns`. The
    /// best estimate is proportional to the length of the piece, `piece_ns`.
    pub fn part(length_ns: u64, somewhere_in_ns: u64, piece_ns: u64) -> BoundedTime {
        let within_ns = somewhere_in_ns.max(length_ns).max(1);
        let ns = u128::from(length_ns) * u128::from(piece_ns) / u128::from(within_ns);
        let least_ns = (length_ns + piece_ns).saturating_sub(within_ns);
        let most_ns = length_ns.min(piece_ns);
        BoundedTime { ns: (ns as u64).clamp(least_ns.min(most_ns), most_ns), least_ns, most_ns }
    }

    /// Returns what remains of `whole_ns` without this time.
    pub fn rest_of(self, whole_ns: u64) -> BoundedTime {
        BoundedTime {
            ns: whole_ns.saturating_sub(self.ns),
            least_ns: whole_ns.saturating_sub(self.most_ns),
            most_ns: whole_ns.saturating_sub(self.least_ns),
        }
    }

    /// Returns the largest possible distance between the best estimate and the true value, ns.
    pub fn error_ns(self) -> u64 {
        self.most_ns.saturating_sub(self.ns).max(self.ns.saturating_sub(self.least_ns))
    }

    pub fn reading(self) -> Reading<u64> {
        match self.error_ns() {
            0 => Reading::Is(self.ns),
            error => Reading::Estimate { value: self.ns, error },
        }
    }
}

impl AddAssign for BoundedTime {
    fn add_assign(&mut self, other: BoundedTime) {
        self.ns += other.ns;
        self.least_ns += other.least_ns;
        self.most_ns += other.most_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_piece_gets_a_share_in_proportion_to_its_length() {
        let of = |ns, least_ns, most_ns| BoundedTime { ns, least_ns, most_ns };
        assert_eq!(BoundedTime::part(10, 100, 50), of(5, 0, 10));
        assert_eq!(BoundedTime::part(80, 100, 50), of(40, 30, 50));
        assert_eq!(BoundedTime::part(10, 100, 100), of(10, 10, 10));
        assert_eq!(BoundedTime::part(10, 10, 4), of(4, 4, 4));
        assert_eq!(BoundedTime::part(30, 100, 10).rest_of(10), of(7, 0, 10));
        assert_eq!(
            BoundedTime::part(30, 100, 10).reading(),
            Reading::Estimate { value: 3, error: 7 }
        );
    }

    proptest! {
        #[test]
        fn the_truth_lies_within_the_bounds(
            pieces in prop::collection::vec((any::<bool>(), any::<bool>()), 1..200),
        ) {
            let count = |of: &dyn Fn(&(bool, bool)) -> bool| {
                pieces.iter().filter(|piece| of(piece)).count() as u64
            };
            let part = BoundedTime::part(
                count(&|piece| piece.0), pieces.len() as u64, count(&|piece| piece.1),
            );
            let truth = count(&|piece| piece.0 && piece.1);
            prop_assert!((part.least_ns..=part.most_ns).contains(&truth));
            prop_assert!((part.least_ns..=part.most_ns).contains(&part.ns));
        }
    }
}
