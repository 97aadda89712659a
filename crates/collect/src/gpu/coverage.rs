//! Finds gaps in CUPTI's records. The hooks count calls, and CUPTI should record each of them. If a
//! long series of calls has no records, another client of CUPTI has taken them.
//!
//! Counts and records are stored by thread and millisecond. CUPTI delivers a buffer when all its
//! records are complete, which a long-running kernel delays. Therefore calls are compared only when
//! they are [`SETTLED_MS`] old.

use std::collections::{BTreeMap, HashSet};
use tprof_trace::model::ThreadIndex;

/// CUPTI's record of a call arrives at most this long after the call, ms.
pub const SETTLED_MS: u64 = 30_000;
/// Largest difference between the hook's time of a call and CUPTI's, ms.
const APART_MS: u64 = 2;
/// A series without records must be at least this long to be a gap, ms. A switch of recording or a
/// flush can cause a shorter one.
const SHORTEST_MS: u64 = 300;
/// A series must have at least this many calls to be a gap.
const FEWEST: u64 = 16;

/// A series of calls that CUPTI should have recorded but didn't.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Time when its first call began, to the millisecond.
    pub from_ns: u64,
    /// Time when its last call began, to the millisecond.
    pub to_ns: u64,
    /// Number of calls without a record.
    pub calls: u64,
}

/// Compares counted calls with recorded ones.
#[derive(Debug, Default)]
pub struct Coverage {
    counted: BTreeMap<(u64, ThreadIndex), u64>,
    /// The millisecond and thread of the last counted calls, and their number. Many calls share a
    /// millisecond, so `counted` is updated only when a new millisecond begins.
    counting: Option<((u64, ThreadIndex), u64)>,
    recorded: HashSet<(u64, ThreadIndex)>,
    last_recorded: Option<(u64, ThreadIndex)>,
    open: Option<Gap>,
    gaps: Vec<Gap>,
}

impl Coverage {
    /// Counts a call that a hook saw and that CUPTI should record.
    pub fn counted(&mut self, thread: ThreadIndex, start_ns: u64) {
        let at = (start_ns / 1_000_000, thread);
        match &mut self.counting {
            Some((last, calls)) if *last == at => *calls += 1,
            counting => {
                let before = counting.replace((at, 1));
                self.count(before);
            }
        }
    }

    fn count(&mut self, calls: Option<((u64, ThreadIndex), u64)>) {
        if let Some((at, calls)) = calls {
            *self.counted.entry(at).or_default() += calls;
        }
    }

    /// Notes that CUPTI recorded a call, or that the call needs no record.
    pub fn covered(&mut self, thread: ThreadIndex, start_ns: u64) {
        let at = (start_ns / 1_000_000, thread);
        if self.last_recorded != Some(at) {
            self.last_recorded = Some(at);
            self.recorded.insert(at);
        }
    }

    /// Compares the calls that are old enough with the records.
    pub fn settle(&mut self, now_ns: u64) {
        let until = (now_ns / 1_000_000).saturating_sub(SETTLED_MS);
        while let Some(entry) = self.counted.first_entry().filter(|entry| entry.key().0 < until) {
            let ((at_ms, thread), calls) = entry.remove_entry();
            let near = at_ms.saturating_sub(APART_MS)..=at_ms + APART_MS;
            if near.into_iter().any(|ms| self.recorded.contains(&(ms, thread))) {
                self.close();
                continue;
            }
            let at_ns = at_ms * 1_000_000;
            let gap = self.open.get_or_insert(Gap { from_ns: at_ns, to_ns: at_ns, calls: 0 });
            gap.to_ns = at_ns;
            gap.calls += calls;
        }
        if self.recorded.len() > 4 * SETTLED_MS as usize || now_ns == u64::MAX {
            self.recorded.retain(|(ms, _)| ms + APART_MS >= until);
        }
    }

    fn close(&mut self) {
        if let Some(gap) = self.open.take().filter(Gap::is_one) {
            self.gaps.push(gap);
        }
    }

    /// Returns all gaps once the process has ended. Also returns the number of calls at the very
    /// end that have no records but are too few for a gap: CUPTI did not deliver them before the
    /// process ended.
    pub fn finish(&mut self, end_ns: u64) -> (Vec<Gap>, u64) {
        let counting = self.counting.take();
        self.count(counting);
        self.settle(u64::MAX);
        let rest =
            self.open.filter(|gap| !gap.is_one() && gap.to_ns + SHORTEST_MS * 1_000_000 >= end_ns);
        self.close();
        (std::mem::take(&mut self.gaps), rest.map_or(0, |gap| gap.calls))
    }
}

impl Gap {
    fn is_one(&self) -> bool {
        self.calls >= FEWEST && self.to_ns - self.from_ns >= SHORTEST_MS * 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn calls_that_cupti_recorded_leave_no_gap() {
        let mut coverage = Coverage::default();
        for ms in 0..2000 {
            coverage.counted(1, ms * MS + 999_000);
            // CUPTI's clock says that the call is a little later, in the next millisecond.
            coverage.covered(1, ms * MS + 1_000_500);
        }
        assert_eq!(coverage.finish(2000 * MS), (Vec::new(), 0));
    }

    #[test]
    fn a_long_series_without_records_is_a_gap() {
        let mut coverage = Coverage::default();
        for ms in 0..3000 {
            for thread in [1, 2] {
                coverage.counted(thread, ms * MS);
                if !(1000..2000).contains(&ms) {
                    coverage.covered(thread, ms * MS);
                }
            }
        }
        // Calls near a recorded call count as recorded, so the gap is a little shorter.
        let (from_ns, to_ns) = ((1000 + APART_MS) * MS, (2000 - APART_MS - 1) * MS);
        let calls = 2 * (1000 - 2 * APART_MS);
        assert_eq!(coverage.finish(3000 * MS), (vec![Gap { from_ns, to_ns, calls }], 0));
    }

    #[test]
    fn calls_just_before_the_end_are_counted_instead_of_a_gap() {
        let mut coverage = Coverage::default();
        for ms in 0..1000 {
            coverage.counted(1, ms * MS);
            if ms < 900 {
                coverage.covered(1, ms * MS);
            }
        }
        assert_eq!(coverage.finish(1000 * MS), (Vec::new(), 100 - APART_MS + 1 - 1));
        // A short series long before the end is due to a switch of recording.
        let mut coverage = Coverage::default();
        for ms in 0..100 {
            coverage.counted(1, ms * MS);
        }
        assert_eq!(coverage.finish(9000 * MS), (Vec::new(), 0));
    }

    #[test]
    fn calls_are_forgotten_once_they_are_compared() {
        let mut coverage = Coverage::default();
        for ms in 0..200_000 {
            coverage.counted(1, ms * MS);
            coverage.covered(1, ms * MS);
            coverage.settle(ms * MS);
        }
        assert!(coverage.counted.len() <= SETTLED_MS as usize + 1);
        assert!(coverage.recorded.len() <= 4 * SETTLED_MS as usize + 1);
        assert_eq!(coverage.finish(200_000 * MS), (Vec::new(), 0));
    }
}
