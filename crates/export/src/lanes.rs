//! Distributes intervals over lanes, so that the intervals in each lane nest.
//!
//! Viewers draw a track as a stack. But work on one stream, or spans of two kinds on one thread,
//! may overlap without nesting. An interval that does not nest in one lane is placed in the next lane.

/// The lanes of one track.
#[derive(Debug, Default)]
pub(crate) struct NestedLanes {
    /// Starts and ends of the open intervals of each lane, outermost first.
    open: Vec<Vec<(u64, u64)>>,
}

impl NestedLanes {
    /// Returns the lane for an interval. Intervals must be passed in order of start; of intervals
    /// that begin together, the longest must come first.
    pub fn place(&mut self, start_ns: u64, end_ns: u64) -> usize {
        self.place_with(start_ns, end_ns, |open| open.len())
    }

    /// Does the same as [`NestedLanes::place`] for a reader that sorts intervals which begin
    /// together by itself. Such intervals may be passed in any order of length.
    pub fn place_sorted_later(&mut self, start_ns: u64, end_ns: u64) -> usize {
        let shorter = |one: &(u64, u64)| one.0 == start_ns && one.1 < end_ns;
        self.place_with(start_ns, end_ns, |open| {
            open.len() - open.iter().rev().take_while(|one| shorter(one)).count()
        })
    }

    /// Places an interval in the first lane where it nests. `at` finds its position among the open
    /// intervals of a lane.
    fn place_with(
        &mut self,
        start_ns: u64,
        end_ns: u64,
        at: impl Fn(&[(u64, u64)]) -> usize,
    ) -> usize {
        for (lane, open) in self.open.iter_mut().enumerate() {
            while open.last().is_some_and(|(_, end)| *end <= start_ns) {
                open.pop();
            }
            let at = at(open);
            if at == 0 || end_ns <= open[at - 1].1 {
                open.insert(at, (start_ns, end_ns));
                return lane;
            }
        }
        self.open.push(vec![(start_ns, end_ns)]);
        self.open.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_that_nest_share_a_lane() {
        let mut lanes = NestedLanes::default();
        let timed_collectives: Vec<usize> =
            [(0, 10), (0, 5), (5, 10), (7, 12), (8, 9), (10, 10), (11, 13), (12, 20)]
                .into_iter()
                .map(|(start, end)| lanes.place(start, end))
                .collect();
        assert_eq!(timed_collectives, [0, 0, 0, 1, 0, 0, 0, 1]);
    }

    #[test]
    fn intervals_that_begin_together_may_come_in_any_order() {
        let mut lanes = NestedLanes::default();
        let timed_collectives: Vec<usize> =
            [(0, 10), (5, 6), (5, 9), (5, 7), (5, 11), (7, 8), (8, 12), (9, 10)]
                .into_iter()
                .map(|(start, end)| lanes.place_sorted_later(start, end))
                .collect();
        assert_eq!(timed_collectives, [0, 0, 0, 0, 1, 0, 2, 0]);
    }
}
