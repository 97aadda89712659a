//! Compares the calls that the hooks counted with those that CUPTI recorded: where a series of
//! calls brought no records, another client of CUPTI has taken them over.
//!
//! Both are kept by thread and millisecond. CUPTI gives its records back when a buffer is complete,
//! which a long-running kernel delays, so nothing is judged before it is [`SETTLED_MS`] old.

use std::collections::{BTreeMap, HashSet};
use tprof_trace::model::ThreadIndex;

/// Latest time at which CUPTI's record of a call may come, milliseconds after the call.
pub const SETTLED_MS: u64 = 30_000;
/// Largest distance between the times that the two have for one call, milliseconds.
const APART_MS: u64 = 2;
/// A shorter stretch is not a gap: a switch of recording, or a flush, cuts off as much.
const SHORTEST_MS: u64 = 300;
/// Fewer calls are not a gap either.
const FEWEST: u64 = 16;

/// A stretch of calls without records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Time when its first call began, to the millisecond.
    pub from_ns: u64,
    /// Time when its last call began, to the millisecond.
    pub to_ns: u64,
    /// Number of calls.
    pub calls: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Coverage {
    counted: BTreeMap<(u64, ThreadIndex), u64>,
    /// The call that was counted last: many calls lie in one millisecond.
    counting: Option<((u64, ThreadIndex), u64)>,
    recorded: HashSet<(u64, ThreadIndex)>,
    last_recorded: Option<(u64, ThreadIndex)>,
    open: Option<Gap>,
    gaps: Vec<Gap>,
}

impl Coverage {
    /// The hooks counted a call that CUPTI should record.
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

    /// CUPTI recorded a call.
    pub fn covered(&mut self, thread: ThreadIndex, start_ns: u64) {
        let at = (start_ns / 1_000_000, thread);
        if self.last_recorded != Some(at) {
            self.last_recorded = Some(at);
            self.recorded.insert(at);
        }
    }

    /// Judges calls that are old enough.
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

    /// All gaps at the end; and how many calls at the very end brought no records that
    /// are no gap: their process ended before CUPTI gave them back.
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
            // A little later by CUPTI's clock, in the next millisecond.
            coverage.covered(1, ms * MS + 1_000_500);
        }
        assert_eq!(coverage.finish(2000 * MS), (Vec::new(), 0));
    }

    #[test]
    fn a_stretch_without_records_is_a_gap_with_its_times() {
        let mut coverage = Coverage::default();
        for ms in 0..3000 {
            for thread in [1, 2] {
                coverage.counted(thread, ms * MS);
                if !(1000..2000).contains(&ms) {
                    coverage.covered(thread, ms * MS);
                }
            }
        }
        // Calls this near to a recorded one count as recorded.
        let (from_ns, to_ns) = ((1000 + APART_MS) * MS, (2000 - APART_MS - 1) * MS);
        let calls = 2 * (1000 - 2 * APART_MS);
        assert_eq!(coverage.finish(3000 * MS), (vec![Gap { from_ns, to_ns, calls }], 0));
    }

    #[test]
    fn the_last_moment_of_a_killed_process_is_no_gap_and_is_counted() {
        let mut coverage = Coverage::default();
        for ms in 0..1000 {
            coverage.counted(1, ms * MS);
            if ms < 900 {
                coverage.covered(1, ms * MS);
            }
        }
        assert_eq!(coverage.finish(1000 * MS), (Vec::new(), 100 - APART_MS + 1 - 1));
        // Long before the end it was a switch of recording.
        let mut coverage = Coverage::default();
        for ms in 0..100 {
            coverage.counted(1, ms * MS);
        }
        assert_eq!(coverage.finish(9000 * MS), (Vec::new(), 0));
    }

    #[test]
    fn what_is_judged_is_forgotten() {
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
