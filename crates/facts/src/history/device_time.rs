//! Remembers when devices worked, and measures the parts of a window.

/// Largest number of intervals of one kind that are remembered. Beyond it the older half is dropped,
/// and what was dropped is unknown from then on.
const MOST: usize = 1 << 20;
/// Number of forgotten intervals that are worth moving the others.
const WORTH_MOVING: usize = 4096;

/// A set of nanoseconds, of which the beginning is forgotten from time to time.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// Intervals: beginning and end, ns. Those from `from` on count.
    all: Vec<(u64, u64)>,
    from: usize,
    /// Whether intervals are out of order, or may overlap.
    is_mixed: bool,
    /// What lies before this time was dropped although it may still be needed, ns.
    dropped_until_ns: u64,
}

impl Times {
    /// Adds an interval in which the device worked. It may come out of order.
    pub fn add(&mut self, start_ns: u64, end_ns: u64) {
        if end_ns <= start_ns {
            return;
        }
        match self.all[self.from..].last_mut() {
            Some(last) if !self.is_mixed && start_ns >= last.0 && start_ns <= last.1 => {
                last.1 = last.1.max(end_ns);
            }
            last => {
                self.is_mixed |= last.is_some_and(|last| start_ns < last.0);
                self.all.push((start_ns, end_ns));
            }
        }
    }

    /// Puts the intervals in order, so that [`Self::within`] may be called.
    pub fn settle(&mut self, is_bounded: bool) {
        if std::mem::take(&mut self.is_mixed) {
            let all = &mut self.all[self.from..];
            all.sort_unstable();
            let mut kept = 0;
            for at in 1..all.len() {
                let next = all[at];
                if next.0 <= all[kept].1 {
                    all[kept].1 = all[kept].1.max(next.1);
                } else {
                    kept += 1;
                    all[kept] = next;
                }
            }
            self.all.truncate(self.from + kept + 1);
        }
        if is_bounded && self.all.len() - self.from > MOST {
            self.from += MOST / 2;
            self.dropped_until_ns = self.all[self.from].0;
            self.make_room();
        }
    }

    /// Returns the intervals within a window, cut to it; `None` if some were dropped.
    pub fn within(
        &self,
        (start_ns, end_ns): (u64, u64),
    ) -> Option<impl Iterator<Item = (u64, u64)>> {
        if start_ns < self.dropped_until_ns {
            return None;
        }
        let all = &self.all[self.from..];
        let first = all.partition_point(|(_, end)| *end <= start_ns);
        let within = all[first..].iter().take_while(move |(start, _)| *start < end_ns);
        Some(within.map(move |(start, end)| ((*start).max(start_ns), (*end).min(end_ns))))
    }

    /// Returns the length of the set within windows, ns; `None` if that isn't known any more.
    pub fn length(&self, windows: &[(u64, u64)]) -> Option<u64> {
        let length =
            |window| Some(self.within(window)?.map(|(start, end)| end - start).sum::<u64>());
        windows.iter().map(|window| length(*window)).sum()
    }

    /// Forgets what lies before a time, ns.
    pub fn forget(&mut self, before_ns: u64) {
        let gone = self.all[self.from..].partition_point(|(_, end)| *end <= before_ns);
        self.from += gone;
        if self.from > WORTH_MOVING && self.from * 2 > self.all.len() {
            self.make_room();
        }
    }

    fn make_room(&mut self) {
        self.all.drain(..self.from);
        self.from = 0;
    }
}

/// When one device worked.
#[derive(Debug, Default)]
pub(super) struct DeviceTimes {
    /// Times of kernels that compute.
    pub compute: Times,
    /// Times of kernels that communicate.
    pub communication: Times,
    /// Times of copies and memsets.
    pub copies: Times,
}

/// What devices did within windows, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceParts {
    /// Time in which a kernel, a copy or a memset ran.
    pub busy_ns: u64,
    /// Time in which a kernel computed.
    pub compute_ns: u64,
    /// Time in which a kernel communicated.
    pub communication_ns: u64,
    /// Time in which a kernel communicated and none computed.
    pub exposed_ns: u64,
}

impl DeviceTimes {
    pub fn settle(&mut self, is_bounded: bool) {
        for times in [&mut self.compute, &mut self.communication, &mut self.copies] {
            times.settle(is_bounded);
        }
    }

    pub fn forget(&mut self, before_ns: u64) {
        for times in [&mut self.compute, &mut self.communication, &mut self.copies] {
            times.forget(before_ns);
        }
    }

    /// Adds what the device did within a window to `parts`; `None` if that isn't known any more.
    pub fn measure(&self, window: (u64, u64), parts: &mut DeviceParts) -> Option<()> {
        let mut edges: Vec<(u64, usize, bool)> = Vec::new();
        for (kind, times) in [&self.compute, &self.communication, &self.copies].iter().enumerate() {
            for (start, end) in times.within(window)? {
                edges.extend([(start, kind, true), (end, kind, false)]);
            }
        }
        edges.sort_unstable();
        let (mut runs, mut since_ns) = ([false; 3], 0);
        for (time_ns, kind, begins) in edges {
            let length = time_ns.saturating_sub(since_ns);
            let [computes, communicates, copies] = runs;
            let add = |to: &mut u64, counts: bool| *to += if counts { length } else { 0 };
            add(&mut parts.busy_ns, computes || communicates || copies);
            add(&mut parts.compute_ns, computes);
            add(&mut parts.communication_ns, communicates);
            add(&mut parts.exposed_ns, communicates && !computes);
            // An interval of a kind ends where the next one begins only if they are joined, so the
            // order of edges at one time doesn't matter.
            runs[kind] = begins;
            since_ns = time_ns;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(all: &[(u64, u64)]) -> Times {
        let mut times = Times::default();
        all.iter().for_each(|(start, end)| times.add(*start, *end));
        times.settle(true);
        times
    }

    #[test]
    fn intervals_in_any_order_are_a_union() {
        let all = times(&[(10, 20), (15, 30), (40, 50), (5, 12), (30, 35), (45, 46), (7, 7)]);
        let within = |window| all.within(window).unwrap().collect::<Vec<_>>();
        assert_eq!(within((0, 100)), [(5, 35), (40, 50)]);
        assert_eq!(within((34, 42)), [(34, 35), (40, 42)]);
        assert_eq!(within((35, 40)), []);
        assert_eq!(all.length(&[(0, 10), (44, 99)]), Some(5 + 6));
    }

    #[test]
    fn what_is_forgotten_leaves_the_rest() {
        let mut all = times(&[]);
        for at in 0..20_000 {
            all.add(at * 10, at * 10 + 4);
            if at.is_multiple_of(100) {
                all.settle(true);
                all.forget((at * 10).saturating_sub(500));
            }
        }
        all.settle(true);
        assert_eq!(all.length(&[(199_000, 200_000)]), Some(400));
        assert!(all.all.len() < 2 * WORTH_MOVING + 200, "{}", all.all.len());
    }

    #[test]
    fn too_many_intervals_are_unknown_and_not_zero() {
        let mut all = times(&[]);
        (0..MOST as u64 + 2).for_each(|at| all.add(at * 10, at * 10 + 4));
        all.settle(true);
        assert_eq!(all.length(&[(0, 1000)]), None);
        let last = MOST as u64 * 10;
        assert_eq!(all.length(&[(last, last + 20)]), Some(8));
    }

    #[test]
    fn the_parts_of_a_window_add_up() {
        let device = DeviceTimes {
            compute: times(&[(0, 40), (60, 80)]),
            communication: times(&[(30, 70)]),
            copies: times(&[(75, 90), (95, 200)]),
        };
        let mut parts = DeviceParts::default();
        device.measure((10, 100), &mut parts).unwrap();
        let expected =
            DeviceParts { busy_ns: 85, compute_ns: 50, communication_ns: 40, exposed_ns: 20 };
        assert_eq!(parts, expected);
    }

    #[test]
    fn intervals_that_touch_are_not_cut() {
        let device = DeviceTimes { compute: times(&[(0, 10), (10, 20)]), ..DeviceTimes::default() };
        let mut parts = DeviceParts::default();
        device.measure((0, 30), &mut parts).unwrap();
        assert_eq!((parts.busy_ns, parts.compute_ns), (20, 20));
    }
}
