//! Intervals that overlap without nesting, spread over lanes in which they nest.
//!
//! Viewers draw a track as a stack. Work on one stream, or spans of two kinds on
//! one thread, may overlap otherwise: what does not fit goes one lane further.

/// The lanes of one track.
#[derive(Debug, Default)]
pub(crate) struct NestedLanes {
    /// Ends of the open intervals of each lane, outermost first.
    open: Vec<Vec<u64>>,
}

impl NestedLanes {
    /// The lane for an interval. They must come by start, the longest first.
    pub fn place(&mut self, start_ns: u64, end_ns: u64) -> usize {
        for (at, open) in self.open.iter_mut().enumerate() {
            while open.last().is_some_and(|end| *end <= start_ns) {
                open.pop();
            }
            if open.last().is_none_or(|end| end_ns <= *end) {
                open.push(end_ns);
                return at;
            }
        }
        self.open.push(vec![end_ns]);
        self.open.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nests_shares_a_lane() {
        let mut lanes = NestedLanes::default();
        let placed: Vec<usize> =
            [(0, 10), (0, 5), (5, 10), (7, 12), (8, 9), (10, 10), (11, 13), (12, 20)]
                .into_iter()
                .map(|(start, end)| lanes.place(start, end))
                .collect();
        assert_eq!(placed, [0, 0, 0, 1, 0, 0, 0, 1]);
    }
}
