//! Remembers what happened at instants, with an amount, until it is counted.

/// Largest number of instants that are remembered. Beyond it the older half is dropped, and what was
/// dropped is unknown from then on.
const MOST: usize = 1 << 20;

/// What happened, with an amount of each.
#[derive(Debug, Default)]
pub(super) struct Happened {
    /// Time, ns, and amount if it is known.
    all: Vec<(u64, Option<u64>)>,
    is_mixed: bool,
    dropped_until_ns: u64,
    /// Whether anything ever happened.
    pub is_seen: bool,
}

impl Happened {
    pub fn add(&mut self, time_ns: u64, amount: Option<u64>) {
        self.is_seen = true;
        self.is_mixed |= self.all.last().is_some_and(|last| time_ns < last.0);
        self.all.push((time_ns, amount));
    }

    /// Puts all in order, so that [`Self::within`] may be called.
    pub fn settle(&mut self, is_bounded: bool) {
        if std::mem::take(&mut self.is_mixed) {
            self.all.sort_by_key(|(time_ns, _)| *time_ns);
        }
        if is_bounded && self.all.len() > MOST {
            self.all.drain(..MOST / 2);
            self.dropped_until_ns = self.all[0].0;
        }
    }

    /// Returns how often it happened within windows, and the sum of the amounts if each is known;
    /// `None` if it never happened so far, or isn't known any more.
    pub fn within(&self, windows: &[(u64, u64)]) -> Option<(u64, Option<u64>)> {
        if !self.is_seen {
            return None;
        }
        let (mut count, mut sum) = (0, Some(0_u64));
        for (start_ns, end_ns) in windows {
            if *start_ns < self.dropped_until_ns {
                return None;
            }
            let first = self.all.partition_point(|(time_ns, _)| time_ns < start_ns);
            for (_, amount) in self.all[first..].iter().take_while(|of| of.0 < *end_ns) {
                count += 1;
                sum = sum.zip(*amount).map(|(sum, amount)| sum.saturating_add(amount));
            }
        }
        Some((count, sum))
    }

    pub fn forget(&mut self, before_ns: u64) {
        let gone = self.all.partition_point(|(time_ns, _)| *time_ns < before_ns);
        // Moving the rest at each step would take long if much waits.
        if gone * 2 > self.all.len() || gone > 4096 {
            self.all.drain(..gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_within_windows_are_added_unless_one_is_unknown() {
        let mut all = Happened::default();
        assert_eq!(all.within(&[(0, 9)]), None);
        for (time_ns, amount) in [(30, Some(1)), (10, Some(4)), (20, Some(8)), (40, None)] {
            all.add(time_ns, amount);
        }
        all.settle(true);
        assert_eq!(all.within(&[(0, 20), (30, 31)]), Some((2, Some(5))));
        assert_eq!(all.within(&[(30, 50)]), Some((2, None)));
        assert_eq!(all.within(&[(50, 60)]), Some((0, Some(0))));
        all.forget(30);
        assert_eq!(all.within(&[(30, 40)]), Some((1, Some(1))));
    }
}
