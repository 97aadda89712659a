//! The beginnings of steps that a process has counted, by which its count is compared with another
//! process's.

use std::collections::VecDeque;

/// Number of beginnings that are kept.
const KEPT: usize = 64;
/// Number of beginnings that a process must have in common with another to be compared.
const COMMON: usize = 3;

/// The last beginnings of steps of one process.
#[derive(Debug, Default)]
pub struct Boundaries {
    /// Whether the process's count agrees with those of the others.
    pub is_aligned: bool,
    /// Number and time (ns) of each, in order.
    last: VecDeque<(u64, u64)>,
}

impl Boundaries {
    /// Adds the beginning of step `number`.
    pub fn add(&mut self, number: u64, time_ns: u64) {
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back((number, time_ns));
    }

    /// Number of beginnings that are known, up to a limit.
    pub fn len(&self) -> usize {
        self.last.len()
    }

    /// Returns the number and time of each beginning that is known.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64)> {
        self.last.iter().copied()
    }

    /// Adds this to the numbers of all steps, wrapping around.
    pub fn shift(&mut self, by: u64) {
        self.last.iter_mut().for_each(|(number, _)| *number = number.wrapping_add(by));
    }

    /// Returns what must be added to this process's numbers, wrapping around, so that steps which
    /// began at about the same time have the same number in both processes. A process may be late
    /// once, so several beginnings are compared. Returns `None` if there are too few.
    pub fn shift_to(&self, other: &Boundaries) -> Option<u64> {
        let newest = self.last.back()?.0;
        let candidates = other.last.iter().map(|(number, _)| number.wrapping_sub(newest));
        let apart = |shift: u64| {
            let time_of = |number: u64| {
                other.last.iter().find(|(of, _)| *of == number).map(|(_, time)| *time)
            };
            let pairs = self.last.iter().filter_map(|(number, time)| {
                Some(time.abs_diff(time_of(number.wrapping_add(shift))?))
            });
            let apart: Vec<u64> = pairs.collect();
            (apart.len() >= COMMON).then(|| apart.iter().sum::<u64>() / apart.len() as u64)
        };
        let scored = candidates.filter_map(|shift| Some((apart(shift)?, shift)));
        scored.min().map(|(_, shift)| shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Boundaries from step `first` on at these times.
    fn at(first: u64, times: &[u64]) -> Boundaries {
        let mut boundaries = Boundaries::default();
        for (number, time) in (first..).zip(times) {
            boundaries.add(number, *time);
        }
        boundaries
    }

    #[test]
    fn steps_that_begin_together_get_the_same_number() {
        let lead = at(10, &[100, 200, 300, 400, 500]);
        let shift = |first, times: &[u64]| at(first, times).shift_to(&lead).map(|by| by as i64);
        assert_eq!(shift(0, &[203, 304, 402]), Some(11));
        assert_eq!(shift(10, &[103, 204, 302]), Some(0));
        assert_eq!(shift(20, &[303, 404, 502]), Some(-8));
        assert_eq!(shift(0, &[203, 380, 404, 502]), Some(11), "late once");
        assert_eq!(shift(0, &[403, 502]), None);
        assert_eq!(at(0, &[1, 2, 3]).shift_to(&Boundaries::default()), None);
    }

    #[test]
    fn a_shift_applies_to_the_numbers_that_are_known() {
        let lead = at(10, &[100, 200, 300, 400]);
        let mut late = at(3, &[201, 301, 401]);
        late.shift(late.shift_to(&lead).unwrap());
        assert_eq!(late.shift_to(&lead), Some(0));
        assert_eq!(late.len(), 3);
    }
}
