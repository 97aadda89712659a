//! Finds which times of a trace are wrong because they are far from all others.
//!
//! Profilers write 0 for an unknown time. An end that was never set may be centuries ahead. Only
//! all times together show which of them are wrong. So a first pass collects them. If some times
//! are far from the others, a second pass leaves those out and counts them.

use std::collections::BTreeMap;

/// Distance from which on times do not belong to the same run: a year.
pub(crate) const FAR_NS: u64 = 365 * 24 * 3600 * 1_000_000_000;
/// If the gap between 0 and the earliest other time is longer than this, a time of 0 counts as
/// never set: an hour.
const ZERO_NS: u64 = 3600 * 1_000_000_000;
/// For a time of 0 to count as never set, the gap must also be longer than this many times the
/// duration from the first other time to the last.
const ZERO_TIMES: u64 = 100;
/// Times are collected in stretches of 2^50 ns (13 days). No file has times in many stretches.
const STRETCH_BITS: u32 = 50;

/// Times in one stretch: their number, the first and the last.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    count: u64,
    first_ns: u64,
    last_ns: u64,
}

/// The time of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventMoment {
    pub time_ns: u64,
    /// Whether the time is 0, or was written as 0 before a base was added. Such a time may never
    /// have been set.
    pub is_zero: bool,
}

/// All times of a file.
#[derive(Debug, Default)]
pub(crate) struct Times {
    stretches: BTreeMap<u64, Stretch>,
    /// The stretch of the previous time and its number. The next time is usually in the same
    /// stretch.
    last: Option<(u64, Stretch)>,
    /// The earliest of the times that are zero.
    zero_ns: Option<u64>,
}

impl Times {
    /// Adds a time.
    #[inline]
    pub fn add(&mut self, moment: EventMoment) {
        let time_ns = moment.time_ns;
        if moment.is_zero {
            self.zero_ns = Some(self.zero_ns.map_or(time_ns, |zero_ns| zero_ns.min(time_ns)));
            return;
        }
        match &mut self.last {
            Some((number, stretch)) if *number == time_ns >> STRETCH_BITS => {
                stretch.count += 1;
                stretch.first_ns = stretch.first_ns.min(time_ns);
                stretch.last_ns = stretch.last_ns.max(time_ns);
            }
            _ => {
                self.put_away();
                let stretch = Stretch { count: 1, first_ns: time_ns, last_ns: time_ns };
                self.last = Some((time_ns >> STRETCH_BITS, stretch));
            }
        }
    }

    fn put_away(&mut self) {
        let Some((number, new)) = self.last.take() else { return };
        let empty = Stretch { count: 0, ..new };
        let known = self.stretches.entry(number).or_insert(empty);
        known.count += new.count;
        known.first_ns = known.first_ns.min(new.first_ns);
        known.last_ns = known.last_ns.max(new.last_ns);
    }

    /// Returns the period of the times that belong together; `None` if all times do.
    pub fn run_period(mut self) -> Option<RunPeriod> {
        self.put_away();
        let mut groups: Vec<Stretch> = Vec::new();
        for stretch in self.stretches.values() {
            match groups.last_mut() {
                Some(group) if stretch.first_ns - group.last_ns <= FAR_NS => {
                    group.count += stretch.count;
                    group.last_ns = stretch.last_ns;
                }
                _ => groups.push(*stretch),
            }
        }
        let most = groups.iter().max_by_key(|group| group.count)?;
        let pause_ns = self.zero_ns.map_or(0, |zero_ns| most.first_ns.saturating_sub(zero_ns));
        let length_ns = most.last_ns - most.first_ns;
        let zero_is_unset =
            pause_ns > FAR_NS || pause_ns > ZERO_NS && pause_ns / ZERO_TIMES > length_ns;
        let has_far = groups.len() > 1;
        (has_far || zero_is_unset).then_some(RunPeriod {
            first_ns: most.first_ns,
            last_ns: most.last_ns,
            zero_is_unset,
        })
    }
}

/// The period that the times of a run lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunPeriod {
    first_ns: u64,
    last_ns: u64,
    /// Whether a time of 0 means that it was never set.
    zero_is_unset: bool,
}

/// Why a time is outside the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutsideReason {
    /// The time was never set.
    Unset,
    /// The time is more than a year from the run.
    Far,
}

impl RunPeriod {
    /// Returns why a time is outside the run, if it is.
    pub fn outside(&self, moment: EventMoment) -> Option<OutsideReason> {
        match moment.is_zero {
            true => self.zero_is_unset.then_some(OutsideReason::Unset),
            false => (!(self.first_ns..=self.last_ns).contains(&moment.time_ns))
                .then_some(OutsideReason::Far),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_NS: u64 = 24 * 3600 * 1_000_000_000;

    fn run_period(zeros: &[u64], times: &[u64]) -> Option<RunPeriod> {
        let mut all = Times::default();
        zeros.iter().for_each(|time_ns| all.add(EventMoment { time_ns: *time_ns, is_zero: true }));
        times.iter().for_each(|time_ns| all.add(EventMoment { time_ns: *time_ns, is_zero: false }));
        all.run_period()
    }

    #[test]
    fn times_without_large_gaps_belong_to_one_run() {
        assert_eq!(run_period(&[], &[]), None);
        assert_eq!(run_period(&[0, 0], &[]), None);
        assert_eq!(run_period(&[0], &[5_000, 9_000]), None);
        // These runs are idle for half an hour after their start, or for a day within a job of a
        // month.
        assert_eq!(run_period(&[0], &[1_800_000_000_000, 1_800_000_001_000]), None);
        assert_eq!(run_period(&[0], &[DAY_NS, 30 * DAY_NS]), None);
        assert_eq!(run_period(&[], &[1, 300 * DAY_NS, 600 * DAY_NS]), None);
    }

    #[test]
    fn a_zero_among_absolute_times_was_not_set() {
        let now_ns = 20_000 * DAY_NS;
        let found = run_period(&[0], &[now_ns, now_ns + 5]).unwrap();
        let outside = |time_ns, is_zero| found.outside(EventMoment { time_ns, is_zero });
        assert_eq!(outside(0, true), Some(OutsideReason::Unset));
        assert_eq!(outside(now_ns, false), None);
        // These times count from the start of the machine, or from a base that the file names.
        assert!(run_period(&[0], &[DAY_NS, DAY_NS + 1_000_000_000]).unwrap().zero_is_unset);
        assert!(
            run_period(&[now_ns], &[now_ns + DAY_NS, now_ns + DAY_NS + 9]).unwrap().zero_is_unset
        );
    }

    #[test]
    fn times_more_than_a_year_away_are_outside_the_run() {
        let now_ns = 20_000 * DAY_NS;
        for far_ns in [1, now_ns - 9_000 * DAY_NS, now_ns + 9_000 * DAY_NS, u64::MAX] {
            // The wrong time may come first or later, and next to a time of 0.
            for times in [[far_ns, now_ns, now_ns + 7], [now_ns, far_ns, now_ns + 7]] {
                let found = run_period(&[0, 0, 0], &times).unwrap();
                let far = EventMoment { time_ns: far_ns, is_zero: false };
                assert_eq!(found.outside(far), Some(OutsideReason::Far));
                let near = EventMoment { time_ns: now_ns + 7, is_zero: false };
                assert_eq!(found.outside(near), None);
            }
        }
    }
}
